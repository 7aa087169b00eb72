//! `docs/settings.md`, made from the table.

use super::setting::{Group, Level, Ranks, Unset, level};
use super::table::ALL;
use std::fmt::Write;

/// The text of `docs/settings.md`.
pub fn page() -> String {
    let mut page = String::new();
    page.push_str(HEAD);
    for (group, head, tail) in SECTIONS {
        page.push_str(head);
        table(&mut page, *group);
        page.push_str(tail);
    }
    page.push_str("\n## NCCL's and FakeGPU's variables\n\n");
    page.push_str(ALIASES);
    aliases(&mut page);
    page.push_str(TAIL);
    page
}

const HEAD: &str = "\
# Settings

<!-- Written by `cargo xtask settings` from `runtime/src/settings/`; change the texts there. -->

Every environment variable that RingCCL reads or sets. An empty value counts as not set. A bad value is an error at
start that names the variable, the value and what would be right; an unknown `RINGCCL_` name is warned about once per
process, with the nearest name. `ringccl doctor` shows what is set, where it comes from, every problem at once, and
what will be used. In code, `ringccl::Config` has the same settings.

A setting has one name. Some are known to NCCL or FakeGPU under a name of theirs, which counts where ours is not set:
`RINGCCL_` beats `NCCL_`, `NCCL_` beats `FAKEGPU_`, and a value that is beaten is not looked at. Two settings that
contradict each other are an error that names both; where they are of different programs the same order decides
instead. Defaults of FakeGPU do not count: its variables have an effect only when set.

The column *ranks*: `compared` must be equal on all ranks and is compared when they join, by what it comes to; `equal`
must be equal and is not compared; `own` may differ.
";

const SECTIONS: &[(Group, &str, &str)] = &[
    (
        Group::Communicator,
        "
## Of a communicator

Read by `Config::from_env` (`runtime/src/settings/collect.rs`).

",
        "
Default of `RINGCCL_CHUNK_BYTES`: 512 KiB up to 4 ranks, 1 MiB up to 8, then 8 MiB divided by the ranks (rounded up to a
power of two), at least 16 KiB. Slots for a channel take 4 x ranks x this many bytes of `/dev/shm` once they are used.

`RINGCCL_STAGING_MAX_BYTES` covers, for every channel, a rank's rings to all others and to each of them, with counters
and line areas, and its share of the relay. Slots shrink down to 4 KiB, then the line areas, then the slots again; the
least bound is a few pages for each channel, and a lower one is an error that tells it. Buffers of any size pass under
any bound.

Results of `flat` and `twoshot`, which add in rank order, do not depend on chunk, bound or channels. `ring` and
`relay` add each chunk or piece in an order that starts at another rank, as NCCL's ring does: there the last bits of
floating-point sums depend on how the buffer is cut, and are the same on all ranks and on every run with the same
settings.

`RINGCCL_NUMERICS=nccl` gives every element of an all-reduce, reduce and reduce-scatter the order of ranks in which the
ring of NCCL 2.30 adds it, with ranks in the order 0, 1, 2, ... NCCL cuts the buffer by channels, protocol and buffer
size, so these must be as in the run to compare with: as many channels as `NCCL_MAX_NCHANNELS` (or `RINGCCL_CHANNELS`)
says; the protocol that `NCCL_PROTO` leaves, Simple if it leaves it, else LL128; `NCCL_BUFFSIZE` (default 4194304; or
`RINGCCL_BUFFER_BYTES`), `NCCL_LL_BUFFSIZE`, `NCCL_LL128_BUFFSIZE`. NCCL's tuner, which would choose protocol, threads
and channels by size, is not modelled: fix them there by `NCCL_ALGO=Ring`, `NCCL_PROTO` and
`NCCL_MIN_NCHANNELS`=`NCCL_MAX_NCHANNELS`, and beware that NCCL takes fewer channels for small buffers. Operations of
one NCCL group share its channels; here each is cut as if it were alone. `RINGCCL_CHUNK_BYTES` and the staging bound
change no bit. Payloads of NaN are not covered.

These contradict each other: `RINGCCL_PROTO` of `LL` or `LL128` with `RINGCCL_ALGO=twoshot` or `relay`;
`RINGCCL_ALGO=flat`, `twoshot`, `tree` or `relay` with `RINGCCL_NUMERICS=nccl`; a `RINGCCL_BUFFER_BYTES` below 1024
with it; least channels above the most; a connect time-out above the join time-out; a chunk above the staging bound or
above a quarter of `RINGCCL_BUFFER_BYTES`; a coordinator's transport with an address of the other kind.
",
    ),
    (
        Group::Mode,
        "
## Of the modes

Read by `Config::from_env` (`runtime/src/settings/collect.rs`).

",
        "",
    ),
    (
        Group::Joining,
        "
## Of joining

Read by `Communicator::from_env` (`runtime/src/comm/init.rs`). `ringccl run` sets all of them but the coordinator's and
those of other launchers; `RINGCCL_JOB` it sets to something random unless it is set already. What the job is called
matters only at a coordinator (`docs/coordinator.md`).

",
        "",
    ),
    (
        Group::Output,
        "
## Of what a run leaves behind

",
        "",
    ),
    (
        Group::NoEffect,
        "
## Known, without effect

Variables of FakeGPU that programs may have set. Their values are checked; nothing uses them in this version, which is
told at the log level `debug` and by `ringccl doctor`.

",
        "",
    ),
];

const ALIASES: &str = "\
Other variables of NCCL (`NCCL_IB_*`, `NCCL_SOCKET_*` and so on) concern what RingCCL does not have; they are not looked
at.

";

const TAIL: &str = "
## Set by the launcher

For the ranks, `ringccl run` (`cli/src/run.rs`) sets, besides what is listed under joining:

| variable | value |
| --- | --- |
| `MASTER_ADDR`, `MASTER_PORT` | 127.0.0.1 and a free port for the program's own use: nothing of RingCCL listens there |
| `LOCAL_WORLD_SIZE` | number of ranks on the rank's node |
| `GROUP_RANK` | number of the rank's node in the cluster file, from 0 |
| `RINGCCL_CLUSTER_CONFIG` | absolute path of the cluster file, if there is one |
| `RINGCCL_JOIN_TIMEOUT_MS` | from `--timeout-start`, if given |
| `RINGCCL_BIND` | from `--bind` or `--pin`, if given; also by `ringccl perf` |

`--grace` and `--no-prefix` have no variable. `ringccl run` starts up to 4096 processes, of which a communicator can
hold 1024.

## Of the comparison with peers

`PEERS_HOME`, `RINGCCL_BIN`: see `benches/peers/README.md`.
";

fn table(page: &mut String, group: Group) {
    page.push_str("| variable | value | default | ranks | what |\n| --- | --- | --- | --- | --- |\n");
    for setting in ALL.iter().filter(|setting| setting.about().group == group) {
        let about = setting.about();
        let default = match about.default {
            Unset::Is(text) | Unset::ByRanks(_, text) => text,
        };
        let ranks = match about.ranks {
            Ranks::Compared => "compared",
            Ranks::Equal => "equal",
            Ranks::Own => "own",
        };
        let unit = if about.unit.is_empty() { String::new() } else { format!(" {}", about.unit) };
        // The other headings name one reader for all.
        let reader = if group == Group::Output { format!(" (`{}`)", about.reader) } else { String::new() };
        let (name, allowed) = (setting.variables()[0], setting.allowed());
        let _ =
            writeln!(page, "| `{name}` | {allowed}{unit} | {default} | {ranks} | {}{reader} |", about.what);
    }
}

fn aliases(page: &mut String) {
    page.push_str("| variable | setting | value | what is different |\n| --- | --- | --- | --- |\n");
    for wanted in [Level::Nccl, Level::FakeGpu] {
        for setting in ALL {
            for (name, allowed, differs) in setting.aliases().into_iter().filter(|a| level(a.0) == wanted) {
                let _ = writeln!(page, "| `{name}` | `{}` | {allowed} | {differs} |", setting.variables()[0]);
            }
        }
    }
}
