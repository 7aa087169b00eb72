//! Descriptions of machines, and files with the graphs of a log, of any content.

use topo::ConfigError;
use topo::nccl::graph_file;
use topo::nccl::release::Release;
use topo::nccl::system::{parse_nodes, to_yaml};
use topo::nccl::tuner::{Environment, Tuner};

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match parse_nodes("x.yaml", &text) {
        Ok(nodes) => {
            for (name, node) in &nodes {
                node.check().expect("what is read can be searched");
                // What is written of it is read as the same; ports lose the identity of their card, and have none here.
                let again = parse_nodes("y.yaml", &to_yaml(name, node)).expect("what is written is read");
                assert_eq!(again.len(), 1);
                assert_eq!((&again[0].0, again[0].1.gpus().len()), (name, node.gpus().len()));
                assert_eq!(again[0].1.nvlinks, node.nvlinks);
            }
        }
        Err(error) => check(&error),
    }
    match graph_file::from_bytes("x.yaml", data, Release::NEWEST, Environment::default()) {
        Ok(setup) => {
            Tuner::new(setup).expect("what is read has a table");
        }
        Err(error) => check(&error),
    }
}

fn check(error: &ConfigError) {
    assert!(!error.problems().is_empty(), "no problem in {error}");
    for problem in error.problems() {
        assert!(!problem.message.is_empty() && !problem.message.contains('\n'), "{problem:?}");
    }
}
