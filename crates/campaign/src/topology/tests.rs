//! One node: recorded on a virtual machine of two CPUs. Two and four nodes: written by hand in the kernel's form, two sockets of
//! eight cores with two threads each whose numbers go from socket to socket in turn, and four nodes of four cores of which one is
//! offline.

use super::*;

fn one() -> Topology {
    Topology::parse(include_str!("one-node.txt"))
}

fn two() -> Topology {
    Topology::parse(include_str!("two-nodes.txt"))
}

fn four() -> Topology {
    Topology::parse(include_str!("four-nodes.txt"))
}

fn picked(topology: &Topology, count: usize, taken: &[usize]) -> Option<String> {
    let cpus = topology.pick(count, &taken.iter().copied().collect())?;
    assert_eq!(cpus.len(), count);
    Some(cpu_ranges(&cpus.into_iter().collect()))
}

#[test]
fn hosts_are_read() {
    assert_eq!(one().counted(), "2 CPUs (0-1)");
    assert_eq!(two().counted(), "32 CPUs (0-31)");
    assert_eq!(four().counted(), "15 CPUs (0-14)", "CPUs that are possible and not online do not count");
    assert_eq!(two().cpus[&19], Cpu { core: 3, node: 1 });
    assert!(Topology::parse("").is_unknown() && Topology::parse("nonsense\n/sys: x").is_unknown());
    // A container that may use a part of its host only.
    let part = include_str!("two-nodes.txt").replace("Cpus_allowed_list:\t0-31", "Cpus_allowed_list:\t4-7");
    assert_eq!(Topology::parse(&part).counted(), "4 CPUs (4-7)");
    // A kernel without NUMA and a machine without topology.
    let bare = Topology::parse("/sys/devices/system/cpu/online:0-3\n");
    assert_eq!(picked(&bare, 3, &[]).unwrap(), "0-2");
}

#[test]
fn cpus_that_others_do_not_use_come_first() {
    assert_eq!(picked(&one(), 1, &[0]).unwrap(), "1");
    assert_eq!(picked(&one(), 2, &[0]).unwrap(), "0-1", "where they do not suffice they are shared");
    assert_eq!(picked(&one(), 1, &[0, 1]).unwrap(), "0");
    assert_eq!(picked(&one(), 3, &[]), None, "there are no more");
    assert_eq!(picked(&four(), 14, &[0]).unwrap(), "1-14");
    assert_eq!(picked(&four(), 15, &[0]).unwrap(), "0-14");
}

#[test]
fn whole_cores_come_before_their_second_threads() {
    assert_eq!(picked(&two(), 8, &[]).unwrap(), "0,2,4,6,8,10,12,14", "the cores of one node");
    assert_eq!(picked(&two(), 16, &[]).unwrap(), "0-15", "two nodes before second threads");
    assert_eq!(picked(&two(), 17, &[]).unwrap(), "0-16");
    assert_eq!(picked(&two(), 32, &[]).unwrap(), "0-31");
    // 16 is free, but the core that it is a thread of is the tester's.
    assert_eq!(picked(&two(), 15, &[0]).unwrap(), "1-15");
    assert_eq!(picked(&two(), 16, &[0]).unwrap(), "1-15,17", "rather a second thread of an own core");
    assert_eq!(picked(&two(), 30, &[0]).unwrap(), "1-15,17-31");
    assert_eq!(picked(&two(), 31, &[0]).unwrap(), "1-31", "rather than the CPU that is the tester's");
    assert_eq!(picked(&two(), 32, &[0]).unwrap(), "0-31");
}

#[test]
fn one_node_comes_before_two() {
    assert_eq!(picked(&two(), 7, &[0]).unwrap(), "1,3,5,7,9,11,13", "node 1 has more that are free");
    assert_eq!(picked(&two(), 8, &[0]).unwrap(), "1,3,5,7,9,11,13,15");
    assert_eq!(picked(&two(), 9, &[0]).unwrap(), "1-3,5,7,9,11,13,15");
    for count in 1..=4 {
        let cpus = four().pick(count, &BTreeSet::from([0, 12])).unwrap();
        assert!(cpus.iter().all(|cpu| (4..8).contains(cpu)), "{cpus:?}");
    }
    assert_eq!(picked(&four(), 8, &[0, 12]).unwrap(), "4-11");
}

#[test]
fn more_cores_are_the_fewer_ones_and_others() {
    for (topology, taken) in [(two(), vec![]), (two(), vec![0, 3]), (four(), vec![5, 6])] {
        let taken: BTreeSet<usize> = taken.into_iter().collect();
        for count in 1..topology.cpus.len() {
            let (few, many) = (topology.pick(count, &taken).unwrap(), topology.pick(count + 1, &taken).unwrap());
            assert!(few.iter().all(|cpu| many.contains(cpu)), "{few:?} {many:?}");
        }
    }
}

/// What [`LOOK`] prints on this machine is what the tests above are about.
#[test]
fn this_machine_can_be_looked_at() {
    let output = std::process::Command::new(LOOK[0]).args(&LOOK[1..]).output().unwrap();
    let here = Topology::parse(&String::from_utf8_lossy(&output.stdout));
    let allowed = net::affinity::allowed_cpus().len();
    assert_eq!(here.cpus().len(), allowed, "{}", String::from_utf8_lossy(&output.stdout));
}
