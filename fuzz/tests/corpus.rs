//! Every target on every kept input, and on inputs of each length from nothing.

use ringccl_fuzz::{TARGETS, Target, corpus, target};

fn replay(name: &str) {
    let target: &Target = target(name).unwrap();
    (target.run)(&[]);
    let mut files: Vec<_> =
        std::fs::read_dir(corpus(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{name} has no inputs");
    for file in files {
        println!("{}", file.display());
        (target.run)(&std::fs::read(file).unwrap());
    }
}

macro_rules! replay {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            // Each input that was ever worth keeping passes.
            replay(stringify!($name));
        }
    )* };
}
replay!(wire, cluster, nodes, unique_id, header, ring, pair);

#[test]
fn every_target_is_replayed() {
    // The list above is the list of targets.
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names, ["wire", "cluster", "nodes", "unique_id", "header", "ring", "pair"]);
}
