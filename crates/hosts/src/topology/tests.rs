//! Tests with recordings of three machines. The machine with one NUMA node is a virtual machine
//! with two CPUs. The recordings with two and four nodes are from the test data of hwloc
//! (<https://github.com/open-mpi/hwloc>, commit 3b37b024aa3fe368dd82008eea7e1ad9dca97d2c,
//! `tests/hwloc/linux`). The recordings from hwloc contain only the files that dns64bench reads.
//! `32intel64-2p8co2t+8ve` has two sockets of eight cores with two threads each. The second threads
//! of the cores are numbered after all first threads. `40intel64-4n10c+pci-conflicts` has four
//! sockets of ten cores without second threads. Its cores are numbered alternately across the
//! sockets.

use super::*;

fn one() -> CpuTopology {
    CpuTopology::parse(include_str!("one-node.txt"))
}

fn two() -> CpuTopology {
    CpuTopology::parse(include_str!("two-nodes.txt"))
}

fn four() -> CpuTopology {
    CpuTopology::parse(include_str!("four-nodes.txt"))
}

fn picked(topology: &CpuTopology, count: usize, taken: &[usize]) -> Option<String> {
    let cpus = topology.pick(count, &taken.iter().copied().collect())?;
    assert_eq!(cpus.len(), count);
    Some(cpu_ranges(&cpus.into_iter().collect()))
}

/// Returns the machine with four nodes, with its last CPU offline.
fn four_but_one() -> CpuTopology {
    let text = include_str!("four-nodes.txt");
    let off =
        text.replace("/sys/devices/system/cpu/online:0-39", "/sys/devices/system/cpu/online:0-38");
    assert_ne!(off, text);
    CpuTopology::parse(&off)
}

#[test]
fn hosts_are_read() {
    assert_eq!(one().counted(), "2 CPUs (0-1)");
    assert_eq!(two().counted(), "32 CPUs (0-31)");
    assert_eq!(four().counted(), "40 CPUs (0-39)");
    assert_eq!(
        four_but_one().counted(),
        "39 CPUs (0-38)",
        "CPUs that are there and not online do not count"
    );
    assert_eq!(two().cpus[&25], Cpu { core: 9, node: 1 });
    assert_eq!(
        (four().cpus[&38], four().cpus[&4]),
        (Cpu { core: 38, node: 2 }, Cpu { core: 4, node: 0 })
    );
    assert!(
        CpuTopology::parse("").is_unknown() && CpuTopology::parse("nonsense\n/sys: x").is_unknown()
    );
    // A container may be restricted to some CPUs of its host.
    let part =
        format!("{}/proc/self/status:Cpus_allowed_list:\t4-7\n", include_str!("two-nodes.txt"));
    assert_eq!(CpuTopology::parse(&part).counted(), "4 CPUs (4-7)");
    // A kernel without NUMA reports no nodes, and some machines report no cores.
    let bare = CpuTopology::parse("/sys/devices/system/cpu/online:0-3\n");
    assert_eq!(picked(&bare, 3, &[]).unwrap(), "0-2");
}

#[test]
fn cpus_that_others_do_not_use_come_first() {
    assert_eq!(picked(&one(), 1, &[0]).unwrap(), "1");
    assert_eq!(picked(&one(), 2, &[0]).unwrap(), "0-1", "if there are too few, they are shared");
    assert_eq!(picked(&one(), 1, &[0, 1]).unwrap(), "0");
    assert_eq!(picked(&one(), 3, &[]), None, "there are no more");
    assert_eq!(picked(&four(), 39, &[0]).unwrap(), "1-39");
    assert_eq!(picked(&four(), 40, &[0]).unwrap(), "0-39");
    assert_eq!(picked(&four_but_one(), 38, &[0]).unwrap(), "1-38");
    assert_eq!(picked(&four_but_one(), 40, &[]), None);
}

#[test]
fn whole_cores_come_before_their_second_threads() {
    assert_eq!(picked(&two(), 8, &[]).unwrap(), "0-7", "the cores of one node");
    assert_eq!(picked(&two(), 16, &[]).unwrap(), "0-15", "two nodes before second threads");
    assert_eq!(picked(&two(), 17, &[]).unwrap(), "0-16");
    assert_eq!(picked(&two(), 24, &[]).unwrap(), "0-23", "then the second threads of one node");
    assert_eq!(picked(&two(), 32, &[]).unwrap(), "0-31");
    // CPU 16 is free, but the other thread of its core belongs to the tester.
    assert_eq!(picked(&two(), 15, &[0]).unwrap(), "1-15");
    assert_eq!(
        picked(&two(), 16, &[0]).unwrap(),
        "1-15,24",
        "rather a second thread of an own core"
    );
    assert_eq!(picked(&two(), 30, &[0]).unwrap(), "1-15,17-31");
    assert_eq!(
        picked(&two(), 31, &[0]).unwrap(),
        "1-31",
        "rather than the CPU that is the tester's"
    );
    assert_eq!(picked(&two(), 32, &[0]).unwrap(), "0-31");
}

#[test]
fn one_node_comes_before_two() {
    assert_eq!(picked(&two(), 7, &[0]).unwrap(), "8-14", "node 1 has more that are free");
    assert_eq!(picked(&two(), 8, &[0]).unwrap(), "8-15");
    assert_eq!(picked(&two(), 9, &[0]).unwrap(), "1,8-15");
    let tens =
        ["0,4,8,12,16,20,24,28,32,36", "1,5,9,13,17,21,25,29,33,37", "2,6,10,14,18,22,26,30,34,38"];
    assert_eq!(picked(&four(), 10, &[]).unwrap(), tens[0]);
    // The tester is on nodes 0 and 2. All CPUs of one of the other nodes are chosen before any CPU
    // of the next node.
    assert_eq!(picked(&four(), 10, &[0, 2]).unwrap(), tens[1]);
    for count in 1..=10 {
        let cpus = four().pick(count, &BTreeSet::from([0, 1, 3])).unwrap();
        assert!(cpus.iter().all(|cpu| cpu % 4 == 2), "{cpus:?}");
    }
    for (count, nodes) in [(10, 1), (11, 2), (20, 2), (30, 3), (40, 4)] {
        let cpus = four().pick(count, &BTreeSet::new()).unwrap();
        let used: BTreeSet<usize> = cpus.iter().map(|cpu| four().cpus[cpu].node).collect();
        assert_eq!(used.len(), nodes, "{count} cores: {cpus:?}");
    }
    assert_eq!(
        picked(&four_but_one(), 9, &[0, 1, 2, 4, 5, 6]).unwrap(),
        "3,7,11,15,19,23,27,31,35"
    );
}

#[test]
fn more_cores_are_the_fewer_ones_and_others() {
    for (topology, taken) in
        [(two(), vec![]), (two(), vec![0, 3]), (four(), vec![5, 6]), (four_but_one(), vec![0])]
    {
        let taken: BTreeSet<usize> = taken.into_iter().collect();
        for count in 1..topology.cpus.len() {
            let (few, many) =
                (topology.pick(count, &taken).unwrap(), topology.pick(count + 1, &taken).unwrap());
            assert!(few.iter().all(|cpu| many.contains(cpu)), "{few:?} {many:?}");
        }
    }
}

/// The output of [`LIST_CPUS`] on this machine has the expected form.
#[test]
fn the_cpus_of_this_machine_are_found() {
    let output = std::process::Command::new(LIST_CPUS[0]).args(&LIST_CPUS[1..]).output().unwrap();
    let here = CpuTopology::parse(&String::from_utf8_lossy(&output.stdout));
    let allowed = net::affinity::allowed_cpus().len();
    assert_eq!(here.cpus().len(), allowed, "{}", String::from_utf8_lossy(&output.stdout));
}
