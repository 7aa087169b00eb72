use super::*;

/// The structure of a header: its first bytes count, what follows is another variable of the caller.
fn passed(
    size: usize,
    version: u32,
    change: impl FnOnce(&mut ConfigFields),
) -> Result<ConfigFields, Failure> {
    let mut fields = ConfigFields { size, version, ..UNDEFINED };
    change(&mut fields);
    // SAFETY: the structure is as large as any size that the tests pass.
    unsafe { read(&fields) }
}

/// Headers by their version: the size of their structure and the last field that they have.
const HEADERS: [(u32, usize); 11] = [
    (21400, 24),
    (21605, 24),
    (21700, 40),
    (21800, 48),
    (22505, 48),
    (22602, 48),
    (22700, 72),
    (22800, 80),
    (22900, 88),
    (23003, 96),
    (23007, 96),
];

/// Of every version of the structure the fields of that version are read, and no other: whatever lies in the padding.
#[test]
fn each_version_is_read_by_its_own_fields() {
    for (version, size) in HEADERS {
        let all = |fields: &mut ConfigFields| {
            fields.blocking = 0;
            for field in [&mut fields.min_ctas, &mut fields.max_ctas, &mut fields.nvls_ctas] {
                *field = 2;
            }
            for field in [
                &mut fields.cga_cluster_size,
                &mut fields.split_share,
                &mut fields.collnet_enable,
                &mut fields.shrink_share,
                &mut fields.nvlink_centric_sched,
                &mut fields.graph_usage_mode,
                &mut fields.num_rma_ctx,
                &mut fields.n_channels_per_net_peer,
                &mut fields.max_p2p_peers,
                &mut fields.graph_stream_ordering,
            ] {
                *field = 1;
            }
            fields.traffic_class = 1;
        };
        let read = passed(size, version, all).unwrap();
        let has = |value: c_int| value != UNDEF_INT;
        assert!(!has(read.blocking) || read.blocking == 0);
        let expected = [
            (has(read.blocking), 21400, 20),
            (has(read.min_ctas), 21700, 28),
            (has(read.split_share), 21800, 44),
            (has(read.traffic_class), 22600, 48),
            (has(read.collnet_enable), 22700, 60),
            (has(read.n_channels_per_net_peer), 22800, 76),
            (has(read.num_rma_ctx), 22900, 88),
            (has(read.max_p2p_peers), 23000, 92),
            (has(read.graph_stream_ordering), 23005, 96),
        ];
        for (is_read, since, end) in expected {
            assert_eq!(is_read, version >= since && size >= end, "{version} {size}: field since {since}");
        }
    }
}

/// Structures that no header has made, and fields outside of their ranges, are refused with the field's name.
#[test]
fn wrong_values_are_refused_by_name() {
    let text = |change: fn(&mut ConfigFields)| {
        let failure = passed(96, 23007, change).unwrap_err();
        assert_eq!(failure.code(), Code::InvalidArgument);
        failure.text().to_owned()
    };
    assert!(text(|fields| fields.magic = 0).contains("NCCL_CONFIG_INITIALIZER"));
    assert!(text(|fields| fields.blocking = 2).contains("blocking is 2"));
    assert!(text(|fields| fields.min_ctas = 0).contains("minCTAs is 0"));
    assert!(text(|fields| fields.max_ctas = -1).contains("maxCTAs is -1"));
    assert!(text(|fields| (fields.min_ctas, fields.max_ctas) = (5, 4)).contains("above its maxCTAs"));
    assert!(text(|fields| fields.split_share = 7).contains("splitShare"));
    assert!(text(|fields| fields.cta_policy = 4).contains("CTAPolicy"));
    assert!(text(|fields| fields.graph_usage_mode = 3).contains("graphUsageMode"));
    assert!(text(|fields| fields.max_p2p_peers = 0).contains("maxP2pPeers"));
    assert!(passed(96, 23007, |fields| fields.min_ctas = 5).is_ok(), "the least alone is no contradiction");
}

/// The environment counts more than the program, the program more than what is inherited.
#[test]
fn settings_have_an_order() {
    let parent = Settings { blocking: false, channels: (Some(2), None), ..Settings::default() };
    let of = |fields: &ConfigFields, vars: &[(&str, &str)]| {
        let vars = Vars::from_pairs(vars.iter().copied());
        // SAFETY: the structure has no name.
        unsafe { Settings::of(fields, &parent, &vars) }
    };
    assert_eq!(of(&UNDEFINED, &[]), parent);
    let asked = ConfigFields { blocking: 1, min_ctas: 3, ..UNDEFINED };
    let settings = of(&asked, &[]);
    assert!(settings.blocking && settings.channels.0 == Some(3));
    let settings =
        of(&asked, &[("NCCL_COMM_BLOCKING", "0"), ("NCCL_MIN_CTAS", "4"), ("NCCL_MAX_CTAS", "99")]);
    assert!(!settings.blocking && settings.channels == (Some(4), None));
    let config = settings.config(4, &Vars::default()).unwrap();
    assert_eq!((config.min_channels, config.channels), (4, 4));
}

/// A bad value of NCCL's fails no start, but a list of algorithms that is none does.
#[test]
fn bad_values_of_the_environment() {
    let config = |name: &str, value: &str| Settings::default().config(2, &Vars::from_pairs([(name, value)]));
    assert!(config("NCCL_BUFFSIZE", "many").is_ok());
    let failure = config("NCCL_ALGO", "Bus").unwrap_err();
    assert!(failure.code() == Code::InvalidUsage && failure.text().contains("Bus"));
    assert_eq!(config("RINGCCL_TIMEOUT_MS", "soon").unwrap_err().code(), Code::InvalidArgument);
}
