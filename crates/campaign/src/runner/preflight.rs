//! Checks before a campaign: the programs and CPUs of the plan must exist on their hosts. No server
//! is started.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use hosts::host::{HostError, SshHost};
use hosts::servers::{Driver, Program, find};
use hosts::topology::{CpuTopology, LIST_CPUS};

use crate::plan::{DutPlan, OneOrSeveral, Plan, Point};
use crate::runner::deployment::Deployment;

/// Returns a sentence for each program or CPU that is missing on this machine. Roles that the plan
/// assigns to other hosts are not checked.
pub fn missing_here(plan: &Plan) -> Vec<String> {
    let far = far(plan);
    let cpus = topology_here();
    let mut missing = Vec::new();
    for role in Role::ALL.into_iter().filter(|role| far[*role as usize].is_none()) {
        for (whose, program) in programs(plan, role, &plan.points()) {
            if find(&program).is_none() {
                missing.push(not_found(role.word(), &whose, &program));
            }
        }
        missing.extend(too_many(plan, role, role.word(), &cpus, &plan.points()));
    }
    missing
}

/// Returns the measurement points of a plan that need more cores than this machine has, or CPUs
/// that this machine lacks. Empty if the DUT does not run on this machine.
pub fn points_beyond_cpus(plan: &Plan) -> Vec<Point> {
    if far(plan)[Role::Dut as usize].is_some() {
        return Vec::new();
    }
    let has = topology_here();
    plan.points()
        .into_iter()
        .filter(|point| !has.is_unknown() && is_beyond(plan, point, &has))
        .collect()
}

/// Returns the CPUs of this machine.
fn topology_here() -> CpuTopology {
    let printed = Command::new(LIST_CPUS[0])
        .args(&LIST_CPUS[1..])
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    CpuTopology::parse(&String::from_utf8_lossy(&printed))
}

/// True if a host has too few CPUs for a measurement point, or lacks a CPU that the plan names for
/// the point.
fn is_beyond(plan: &Plan, point: &Point, has: &CpuTopology) -> bool {
    let Some(place) = point.place() else { return false };
    let cpus = has.cpus();
    place.cores > cpus.len() || plan.cpus_at(place).iter().any(|cpu| !cpus.contains(cpu))
}

/// Returns one sentence for each host or address of a plan that cannot be checked from this
/// machine, and one sentence for each address that this machine lacks.
pub fn unchecked_hosts(plan: &Plan) -> Vec<String> {
    let Some(ssh) = &plan.ssh else { return Vec::new() };
    let far = far(plan);
    let others = Role::ALL.into_iter().filter_map(|role| Some((role, far[role as usize]?)));
    let testers = ssh.testers.iter().skip(1).map(|tester| (Role::Tester, tester));
    let further = testers.chain(ssh.auths.iter().skip(1).map(|auth| (Role::Auth, auth)));
    let mut all: Vec<String> = others
        .chain(further)
        .map(|(role, at)| {
            format!(
                "host {} ({}): programs and CPUs cannot be checked from here",
                at.host,
                role.word()
            )
        })
        .collect();
    let of_auth = |key, all: &OneOrSeveral| -> Vec<(&str, Role, SocketAddr)> {
        all.as_slice().iter().map(|&address| (key, Role::Auth, address)).collect()
    };
    let mut addresses = vec![("dut", Role::Dut, ssh.addresses.dut)];
    addresses.extend(of_auth("auth", &ssh.addresses.auth));
    addresses.extend(ssh.addresses.self_test.iter().flat_map(|all| of_auth("self-test", all)));
    for (key, on, address) in addresses {
        if far[on as usize].is_some() {
            all.push(format!("[ssh.addresses] {key} = {address}: cannot be checked from here"));
        } else if std::net::UdpSocket::bind((address.ip(), 0)).is_err() {
            all.push(format!(
                "[ssh.addresses] {key} = {address}: this machine has no such address"
            ));
        }
    }
    all
}

/// Checks that each host has the programs and CPUs for the incomplete measurement points `open`.
/// Returns a sentence for each missing program or CPU.
///
/// # Errors
/// Returns an error if a host is unreachable.
pub(super) fn on_hosts(
    plan: &Plan,
    deployment: &Deployment,
    open: &[Point],
) -> Result<Vec<String>, HostError> {
    let mut missing = Vec::new();
    let testers = deployment.testers.iter().map(|tester| (Role::Tester, tester));
    let auths = deployment.auths.iter().map(|auth| (Role::Auth, auth));
    for (role, machine) in testers.chain([(Role::Dut, &deployment.dut)]).chain(auths) {
        for (whose, program) in programs(plan, role, open) {
            if machine.find(&program)?.is_none() {
                missing.push(not_found(machine.name(), &whose, &program));
            }
        }
        missing.extend(too_many(plan, role, machine.name(), &machine.topology()?, open));
    }
    Ok(missing)
}

/// Role of a host: tester, DUT or AuthDNS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Tester,
    Dut,
    Auth,
}

impl Role {
    const ALL: [Role; 3] = [Role::Tester, Role::Dut, Role::Auth];

    fn word(self) -> &'static str {
        match self {
            Role::Tester => "tester",
            Role::Dut => "dut",
            Role::Auth => "auth",
        }
    }
}

/// Returns the hosts of the first tester, the DUT and the first AuthDNS; `None` stands for this
/// machine. If a role has several hosts, none of them is this machine.
fn far(plan: &Plan) -> [Option<&SshHost>; 3] {
    plan.ssh
        .as_ref()
        .map_or([None; 3], |ssh| [ssh.tester_hosts()[0], ssh.dut.as_ref(), ssh.auth_hosts()[0]])
}

fn not_found(host: &str, whose: &str, program: &Path) -> String {
    let program = program.display();
    format!(
        "host {host}: {whose}: program {program} not found; install it, or set program = in the plan"
    )
}

/// Returns the programs that measurement points need on the host of the tester, the DUT or AuthDNS.
/// Each program comes with the name of its server.
fn programs(plan: &Plan, role: Role, points: &[Point]) -> Vec<(String, PathBuf)> {
    match role {
        Role::Tester => Vec::new(),
        Role::Dut => {
            let open = plan
                .duts
                .iter()
                .filter(|dut| points.iter().any(|point| point.dut() == Some(dut.name())));
            open.flat_map(programs_of).collect()
        }
        Role::Auth => {
            let mut all: Vec<(String, PathBuf)> = Vec::new();
            for auth in points.iter().map(|point| plan.auth_at(point)) {
                let program = program_of(auth.driver.driver(), auth.program.as_deref());
                let program = program.map(|program| (auth.name().to_owned(), program));
                all.extend(program.filter(|program| !all.contains(program)));
            }
            all
        }
    }
}

/// Returns the program that must be installed on a host for a server. Returns `None` if the server
/// is part of dns64bench, or if the commands in the plan name its program.
fn program_of<T>(driver: &Driver<T>, given: Option<&Path>) -> Option<PathBuf> {
    match (driver.program, given) {
        (Program::OfThePlan, _) | (Program::Own { .. }, None) => None,
        (Program::Named(name) | Program::Own { name, .. }, given) => {
            Some(given.unwrap_or(Path::new(name)).into())
        }
    }
}

fn programs_of(dut: &DutPlan) -> Vec<(String, PathBuf)> {
    let commands = dut
        .custom
        .iter()
        .flat_map(|custom| [&custom.start, &custom.ready, &custom.stop, &custom.cpu_pids]);
    // Paths with a placeholder, such as the run folder, do not exist yet.
    let first = commands.filter_map(|words| words.first()).filter(|word| !word.contains('{'));
    let all: BTreeSet<PathBuf> = first
        .map(PathBuf::from)
        .chain(program_of(dut.driver.driver(), dut.program.as_deref()))
        .collect();
    all.into_iter().map(|program| (dut.name().to_owned(), program)).collect()
}

/// Returns a sentence for each plan key that requires CPUs that the host does not have. Returns no sentence if the CPUs
/// of the host are unknown.
fn too_many(
    plan: &Plan,
    role: Role,
    host: &str,
    has: &CpuTopology,
    points: &[Point],
) -> Vec<String> {
    if has.is_unknown() || points.is_empty() {
        return Vec::new();
    }
    let mut named: Vec<(String, &[usize])> = Vec::new();
    let is_dut = role == Role::Dut;
    let own = match role {
        Role::Tester => &plan.cpus.tester,
        Role::Dut => &plan.cpus.dut,
        Role::Auth => &plan.cpus.auth,
    };
    named.push((format!("[cpus] {}", role.word()), own));
    let placements = plan.measure.placements.iter().filter(|_| is_dut);
    named.extend(placements.map(|p| (format!("[[measure.placements]] {}", p.name), &p.cpus[..])));
    let (mut missing, existing) = (Vec::new(), has.cpus());
    for (key, cpus) in named {
        let absent: Vec<String> =
            cpus.iter().filter(|cpu| !existing.contains(cpu)).map(ToString::to_string).collect();
        if !absent.is_empty() {
            missing.push(format!(
                "{key}: no CPU {}; host {host} has {}",
                absent.join(", "),
                has.counted()
            ));
        }
    }
    let cores =
        points.iter().filter_map(|point| point.place()).filter(|place| place.placement.is_none());
    let most = cores.map(|place| place.cores).max().unwrap_or(0);
    if is_dut && most > existing.len() {
        missing.push(format!(
            "[measure] cores: {most} are too many; host {host} has {}",
            has.counted()
        ));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::parse(&format!("name = 'x'\ntopology = 'loopback'\n{text}"), Path::new("p.toml"))
            .unwrap()
    }

    #[test]
    fn missing_cpus_are_named_with_the_existing_ones() {
        let has = CpuTopology::parse("/sys/devices/system/cpu/online:0-1\n");
        let plan = plan(
            "[cpus]\ndut = [1, 17]\nauth = [0]\n[measure]\nplacements = [{ name = 'far', cpus = [2, 3] }]\n\
             [[dut]]\ndriver = 'dns64d'\n",
        );
        let of = |role| too_many(&plan, role, "h", &has, &plan.points());
        assert_eq!(
            of(Role::Dut),
            [
                "[cpus] dut: no CPU 17; host h has 2 CPUs (0-1)",
                "[[measure.placements]] far: no CPU 2, 3; host h has 2 CPUs (0-1)"
            ]
        );
        assert!(of(Role::Auth).is_empty() && of(Role::Tester).is_empty());
        assert!(too_many(&plan, Role::Dut, "h", &has, &[]).is_empty(), "nothing is left to do");
        let many = self::plan("[measure]\ncores = [1, 4]\n[[dut]]\ndriver = 'dns64d'\n");
        let said = too_many(&many, Role::Dut, "h", &has, &many.points());
        assert_eq!(said, ["[measure] cores: 4 are too many; host h has 2 CPUs (0-1)"]);
        let points_beyond_cpus =
            |plan: &Plan| plan.points().iter().filter(|point| is_beyond(plan, point, &has)).count();
        assert_eq!(
            (points_beyond_cpus(&many), points_beyond_cpus(&plan)),
            (1, 1),
            "four cores of two, and the placement on CPUs 2 and 3"
        );
    }

    #[test]
    fn programs_that_are_not_there_are_named() {
        let plan = plan(
            "[auth]\ndriver = 'nsd'\nprogram = '/no/nsd'\n[[dut]]\ndriver = 'dns64d'\n[[dut]]\ndriver = 'unbound'\n\
             program = '/no/unbound'\n[[dut]]\ndriver = 'custom'\nname = 'own'\n\
             custom = { start = ['{folder}/x'], ready = ['sh'], stop = ['/no/stop'] }\n",
        );
        let missing = missing_here(&plan);
        let of = |whose: &str| missing.iter().filter(|text| text.contains(whose)).count();
        assert_eq!(
            (of("/no/nsd"), of("/no/unbound"), of("/no/stop"), missing.len()),
            (1, 1, 1, 3),
            "{missing:?}"
        );
        let points = plan.points();
        let only = programs(&plan, Role::Dut, &points[..1]);
        assert!(only.is_empty(), "completed points need no program: {only:?}");
    }
}
