//! Single attempts: which channels a goal gets, in which order.

use super::super::walk::{Found, Goal, Walk};
use super::*;
use crate::nccl::graph::{PathType, Pattern};
use crate::nccl::system::machine::Machine;
use crate::nccl::system::routes::Routes;

/// What one attempt at rings of this speed finds, with the habits that `change` makes of the newest release's.
fn rings(node: &Node, speed: f32, habits: impl FnOnce(&mut Walk<'_>)) -> Found {
    let machine = Machine::new(node, Release::NEWEST, true);
    let routes = Routes::of(machine, &Env::default());
    let goal = Goal {
        pattern: Pattern::Ring,
        channels_min: 1,
        channels_max: 8,
        bw_intra: speed,
        bw_inter: speed,
        type_intra: PathType::Sys,
        type_inter: PathType::Sys,
        same_channels: false,
        cross_nic: 1,
    };
    let mut best = Found { goal: goal.clone(), ways: Vec::new(), hops: 0 };
    let mut walk = Walk::new(&routes, goal, &mut best, 1 << 14, 0);
    habits(&mut walk);
    walk.channel();
    best
}

#[test]
fn the_gpu_that_uses_a_port_begins_there() {
    // Two GPUs share each port: from 2.28 the one that uses it begins every channel, before that they take turns.
    let node = crate::nccl::profiles::find("gcp-a3-highgpu-8g").unwrap();
    let begins = |found: &Found| found.ways.iter().map(|way| (way.ports[0], way.gpus[0])).collect::<Vec<_>>();
    let newest = begins(&rings(&node, 12.0, |_| {}));
    let routes = Routes::of(Machine::new(&node, Release::NEWEST, true), &Env::default());
    assert_eq!(newest.len(), 8);
    assert!(newest.iter().all(|&(port, gpu)| routes.gpu_near(port) == Some(gpu)), "{newest:?}");
    let before = begins(&rings(&node, 12.0, |walk| walk.habits.user_first = false));
    assert!(before.iter().any(|&(port, gpu)| routes.gpu_near(port) != Some(gpu)), "{before:?}");
}

#[test]
fn ports_of_a_card_are_counted_in_whole_gigabytes() {
    // Two ports of 6 GB/s on one card have room for three channels of 2.4, since each is counted as 2.
    let text = "a:
  cpu: amd
  sm: 80
  numa: [[{switch: true, pcie_gen: 4, gpus: 2, card: [[48000, 0, 1], [48000, 0, 1]]}]]
  nvswitch: 12
";
    let mut node = parse_nodes("a", text).unwrap().remove(0).1;
    fn share(slots: &mut [crate::nccl::system::Slot]) {
        for slot in slots {
            match &mut slot.device {
                crate::nccl::system::Device::Switch(below) => share(below),
                crate::nccl::system::Device::Card(ports) => {
                    ports.iter_mut().for_each(|port| port.card = Some(7));
                }
                crate::nccl::system::Device::Gpu(_) => {}
            }
        }
    }
    share(&mut node.cpus[0].slots);
    assert_eq!(rings(&node, 2.4, |_| {}).ways.len(), 3);
    assert_eq!(rings(&node, 2.0, |_| {}).ways.len(), 3);
    assert_eq!(rings(&node, 3.0, |_| {}).ways.len(), 2);
}
