//! What must cost more costs more.

use super::*;
use crate::nccl::search::{Env, graphs_of};
use crate::nccl::system::{Device, Slot};
use crate::nccl::tuner::Setup;

const CHOICES: [&[(&str, &str)]; 4] = [
    &[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL")],
    &[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")],
    &[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL")],
    &[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "Simple")],
];

#[test]
fn more_bytes_take_longer() {
    // Every profile on one and two nodes, every fixed choice: four times the bytes never take less. (A step of one
    // byte may: it may get a channel more.)
    for profile in profiles::names() {
        for (nodes, env) in [1, 2].into_iter().flat_map(|nodes| CHOICES.map(|env| (nodes, env))) {
            if nodes > 1 && node(profile).ports().is_empty() {
                continue;
            }
            let model = model(profile, nodes, "2.30.7", env);
            let mut last = 0.0;
            for power in (2..=34).step_by(2) {
                let now = model.predict(all_reduce(1 << power)).unwrap().total_us;
                assert!(now >= last, "{profile} {nodes} {env:?} 2^{power}: {now} after {last}");
                last = now;
            }
        }
    }
}

/// The same node with other ports, or other PCIe links.
fn changed(node: &Node, change: &dyn Fn(&mut Slot)) -> Node {
    fn walk(slots: &mut [Slot], change: &dyn Fn(&mut Slot)) {
        for slot in slots {
            change(slot);
            if let Device::Switch(below) = &mut slot.device {
                walk(below, change);
            }
        }
    }
    let mut node = node.clone();
    for cpu in &mut node.cpus {
        walk(&mut cpu.slots, change);
    }
    node
}

#[test]
fn slower_links_cost_more() {
    // Ports from 400 down to 10 Gb/s, PCIe from generation 5 down to 3, for the same channels on every profile with a
    // network: a large operation never gets faster. (With another search it may: other channels may suit it better.)
    let release = Release::new(2, 27, 7);
    let named: Vec<&str> =
        profiles::names().into_iter().filter(|name| !node(name).ports().is_empty()).collect();
    for (profile, env) in named.into_iter().flat_map(|name| CHOICES.map(|env| (name, env))) {
        let whole = node(profile);
        let found = graphs_of(&whole, 4, release, &Env::default()).unwrap();
        let environment = Environment::parse(env.iter().copied(), release).unwrap();
        let setup = Setup::of_search(&whole, 4, release, &found, environment);
        let time = |change: &dyn Fn(&mut Slot)| {
            let site = Site { node: changed(&whole, change), nodes: 4, fabric: Fabric::default() };
            let numbers = Calibration::default();
            let model = Model::of_search(setup.clone(), &site, &found, &Env::default(), numbers).unwrap();
            model.predict(all_reduce(1 << 30)).unwrap().total_us
        };
        let ports = [400_000, 200_000, 100_000, 50_000, 25_000, 10_000].map(|mbps| {
            time(&|slot| {
                if let Device::Card(ports) = &mut slot.device {
                    ports.iter_mut().for_each(|port| port.mbps = mbps);
                }
            })
        });
        let pcie =
            [5, 4, 3].map(|generation| time(&|slot| slot.bandwidth = Node::pcie(generation, 16).unwrap()));
        for times in [&ports[..], &pcie] {
            let grows = times.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-9));
            assert!(grows, "{profile} {env:?} {times:?}");
        }
        assert!(ports[5] > ports[0], "{profile} {env:?} {ports:?}");
    }
}

#[test]
fn an_oversubscribed_network_costs_more() {
    // Each factor more than the one before, in the term for it; nodes below one leaf do not notice.
    for env in CHOICES {
        let of = |nodes_per_leaf, oversubscription| {
            let fabric = Fabric { nodes_per_leaf, oversubscription, rails: false };
            of_node(node("dgx-a100"), 8, "2.27.7", env, fabric).predict(all_reduce(1 << 28)).unwrap()
        };
        let times: Vec<Prediction> = [1.0, 2.0, 4.0, 8.0].map(|factor| of(1, factor)).into();
        assert!(times.windows(2).all(|pair| pair[0].total_us <= pair[1].total_us), "{env:?}");
        assert!(times[3].total_us > 1.5 * times[0].total_us && times[3].term(TermKind::Contention) > 0.0);
        assert_eq!(of(8, 8.0).total_us, of(8, 1.0).total_us, "{env:?}");
        assert!(of(4, 8.0).total_us <= times[3].total_us, "{env:?}");
    }
}

#[test]
fn sharing_links_costs_more_and_every_term_counts() {
    // Two operations at once: neither is faster than alone, the links' times are the sums, and terms make the time.
    for (profile, nodes) in [("dgx-a100", 1), ("aws-p4d", 2), ("8xrtx4090", 1), ("dgx-h100", 2)] {
        let model = model(profile, nodes, "2.30.7", &[]);
        let both = [all_reduce(1 << 28), Operation::new(Collective::AllGather, 1 << 27)];
        let alone = both.map(|one| model.predict(one).unwrap());
        let shared = model.predict_together(&both).unwrap();
        for (own, among) in alone.iter().zip(&shared) {
            assert!(among.total_us >= own.total_us, "{profile}");
            assert_eq!(own.term(TermKind::Contention), 0.0, "{profile}");
            for one in [own, among] {
                let sum: f64 = one.terms.iter().map(|term| term.count * term.each_us).sum();
                assert!((sum - one.total_us).abs() < 1e-9 * sum, "{profile}");
            }
            for load in &among.loads {
                let busy = |of: &Prediction| {
                    of.loads.iter().find(|one| one.link == load.link).map_or(0.0, |one| one.busy_us)
                };
                assert!((busy(&alone[0]) + busy(&alone[1]) - load.busy_us).abs() < 1e-6 * load.busy_us);
            }
        }
        let slower = shared.iter().any(|one| one.term(TermKind::Contention) > 0.0);
        assert!(slower, "{profile}");
    }
}

#[test]
fn one_channel_is_slower_than_twelve_for_the_model_alone() {
    // NCCL_MAX_NCHANNELS changes the prediction, in order, and not the tuner's number.
    for (profile, most) in [("4xv100-nv2", 12), ("dgx-a100", 24), ("dgx-b200", 32)] {
        let of = |channels: u32| {
            let text = channels.to_string();
            let env = [("NCCL_MAX_NCHANNELS", text.as_str()), ("NCCL_ALGO", "Ring")];
            model(profile, 1, "2.27.7", &env).predict(all_reduce(64 << 20)).unwrap()
        };
        let all: Vec<Prediction> = (1..=most).map(of).collect();
        assert!(all.windows(2).all(|pair| pair[0].total_us >= pair[1].total_us * (1.0 - 1e-9)), "{profile}");
        assert!(all.windows(2).all(|pair| pair[0].tuner_us == pair[1].tuner_us), "{profile}");
        assert!(all[0].total_us > 5.0 * all[most as usize - 1].total_us && all[0].is_bound_by_channels);
        assert!(all[0].bottleneck().is_none() && all[most as usize - 1].bottleneck().is_some());
    }
}

#[test]
fn nothing_is_shorter_than_a_launch() {
    // No operation of any profile is below the floor, and what is missing is a term.
    for profile in profiles::names() {
        let model = model(profile, 1, "2.30.7", &[]);
        for collective in Collective::ALL {
            let one = model.predict(Operation::new(collective, 0)).unwrap();
            assert!(one.total_us >= model.calibration().launch_floor_us, "{profile} {collective}");
        }
    }
}
