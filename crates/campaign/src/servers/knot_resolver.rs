//! Knot Resolver 5 (`kresd`). One process answers with one thread, so there is a process for each
//! thread that it is to have: independent instances on the same address and in the same folder,
//! where they share their cache ("Multiple instances" in its manual). Operators' lines go to the
//! end of its file.

use super::{Driver, Program, Ready, Setting, Told, Translate, Version, with, words};

const FILE: &str = "kresd.conf";

pub(super) const DRIVER: Driver<Translate> = Driver {
    name: "Knot Resolver",
    program: Program::Named("kresd"),
    version: Version::Argument("--version"),
    file: FILE,
    configuration,
    command,
    check: None,
    told: Told::ByCommand,
    ready: Ready::Answers,
    speaks_ipv6: true,
    speaks_xdp: false,
};

/// $1: how many; the others: the command of one. All end when one does.
const INSTANCES: &str = "trap 'exit 1' TERM; n=$1; shift; \
                         while [ \"$n\" -gt 0 ]; do { \"$@\"; kill -TERM $$; } & n=$((n - 1)); done; wait";

fn command(setting: &Setting<'_, Translate>, program: &[String]) -> Vec<String> {
    let one = with(program, &["-n", "-q", "-c", &setting.file(FILE), &setting.place()]);
    if setting.threads == 1 {
        return one;
    }
    [words(&["sh", "-c", INSTANCES, "sh", &setting.threads.to_string()]), one].concat()
}

fn configuration(setting: &Setting<'_, Translate>) -> String {
    let Translate { checked, .. } = &setting.task;
    let upstreams = setting.task.each_upstream(|ip, port| format!("'{ip}@{port}', "));
    let forward = format!("policy.FORWARD({{ {} }})", upstreams.trim_end_matches(", "));
    let (anchors, policy): (String, _) = match checked {
        None => {
            (String::new(), format!("policy.suffix({forward}, {{ todname('dns64perf.test') }})"))
        }
        Some(checked) => {
            let anchor = |(owner, data): (&str, Vec<&str>)| {
                format!("trust_anchors.add('{owner} IN DS {}')\n", data.join(" "))
            };
            (checked.of_type("DS").map(anchor).collect(), format!("policy.all({forward})"))
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
         policy.add({policy})\n{}",
        setting.listen.ip(),
        setting.listen.port(),
        setting.extra("")
    )
}
