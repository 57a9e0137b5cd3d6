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
    let Translate { upstream, prefix } = setting.task;
    let network = prefix.to_string();
    let network = network.split('/').next().unwrap_or_default();
    format!(
        "net.listen('{}', {}, {{ kind = 'dns' }})\nnet.ipv6 = true\ntrust_anchors.remove('.')\n\
         modules = {{ 'policy', dns64 = '{network}' }}\ncache.size = 1 * GB\n\
         policy.add(policy.suffix(policy.FORWARD('{}@{}'), {{ todname('dns64perf.test') }}))\n{}",
        setting.listen.ip(),
        setting.listen.port(),
        upstream.ip(),
        upstream.port(),
        setting.extra("")
    )
}
