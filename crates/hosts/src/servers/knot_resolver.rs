//! Knot Resolver 5 and 6 (`kresd`), configured in Lua. A process answers with a single thread, so
//! one process is started for each configured thread. The processes are independent instances on
//! the same address and in the same folder, with a shared cache ("Multiple instances" in the
//! manual). The manager of version 6, which starts such processes from a `config.yaml`, is not
//! used. The operator's configuration lines are added to the end of the configuration file.

use std::net::IpAddr;

use crate::servers::driver::{
    Driver, Program, Ready, Setting, ThreadOption, Translate, Version, with, words,
};
use crate::servers::release::Release;

const FILE: &str = "kresd.conf";
pub(super) const DRIVER: Driver<Translate> =
    Driver { later: &[(Release(6, 0), OF_RULES)], ..OF_POLICIES };
/// Driver for releases in which rules define the forwarding. Names below `test.` are answered locally (RFC 6761) unless
/// a rule forwards them. A policy has no effect on these names.
const OF_RULES: Driver<Translate> = Driver {
    configuration: |setting| {
        let upstreams = each(setting, |ip, port| format!("{{ '{ip}@{port}' }}"));
        let rule = |zone, dnssec| {
            format!(
                "policy.rule_forward_add('{zone}', {{ dnssec = {dnssec}, auth = false }}, {{ {upstreams} }})"
            )
        };
        configuration(setting, &rule("dns64perf.test", false), &rule(".", true))
    },
    ..OF_POLICIES
};
/// Driver for releases in which policies define the forwarding.
const OF_POLICIES: Driver<Translate> = Driver {
    name: "Knot Resolver",
    program: Program::Named("kresd"),
    version: Version::Argument("--version"),
    file: FILE,
    configuration: |setting| {
        let upstreams = each(setting, |ip, port| format!("'{ip}@{port}'"));
        let forward = format!("policy.FORWARD({{ {upstreams} }})");
        let perf = format!("policy.add(policy.suffix({forward}, {{ todname('dns64perf.test') }}))");
        configuration(setting, &perf, &format!("policy.add(policy.all({forward}))"))
    },
    command,
    check: None,
    thread_option: ThreadOption::ByCommand,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: false,
    later: &[],
};
/// Shell script that starts several processes. `$1` is the number of processes, and the other
/// arguments are the command of one process. If one process ends, the script ends all of them.
const INSTANCES: &str = "trap 'exit 1' TERM; n=$1; shift; \
                         while [ \"$n\" -gt 0 ]; do { \"$@\"; kill -TERM $$; } & n=$((n - 1)); done; wait";

fn command(setting: &Setting<'_, Translate>, program: &[String]) -> Vec<String> {
    let one = with(program, &["-n", "-q", "-c", &setting.file(FILE), &setting.place()]);
    if setting.threads == 1 {
        return one;
    }
    [words(&["sh", "-c", INSTANCES, "sh", &setting.threads.to_string()]), one].concat()
}

/// Returns the elements of a Lua table, one for each AuthDNS server.
fn each(setting: &Setting<'_, Translate>, element: impl Fn(IpAddr, u16) -> String) -> String {
    let all = setting.task.each_upstream(|ip, port| format!("{}, ", element(ip, port)));
    all.trim_end_matches(", ").to_owned()
}

/// Returns the text of the configuration file. The Lua text `all` forwards every query, and is used for conformance
/// checks. Otherwise, the Lua text `perf` is used, which forwards only queries for the names of trials.
fn configuration(setting: &Setting<'_, Translate>, perf: &str, all: &str) -> String {
    let Translate { checked, .. } = &setting.task;
    let (anchors, forward): (String, _) = match checked {
        None => (String::new(), perf),
        Some(checked) => {
            let anchor = |(owner, data): (&str, Vec<&str>)| {
                format!("trust_anchors.add('{owner} IN DS {}')\n", data.join(" "))
            };
            (checked.of_type("DS").map(anchor).collect(), all)
        }
    };
    let network = setting.task.prefix().to_string();
    let network = network.split('/').next().unwrap_or_default();
    let dns64 = match checked.as_ref().and_then(|checked| checked.excluded) {
        None => format!("'{network}'"),
        Some(range) => format!(
            "{{ prefix = '{network}', exclude_subnets = {{ '::ffff:0:0/96', '{range}' }} }}"
        ),
    };
    format!(
        "net.listen('{}', {}, {{ kind = 'dns' }})\nnet.ipv6 = true\ntrust_anchors.remove('.')\n{anchors}\
         modules = {{ 'policy', dns64 = {dns64} }}\ncache.size = 1 * GB\n\
         {forward}\n{}",
        setting.listen.ip(),
        setting.listen.port(),
        setting.extra("")
    )
}
