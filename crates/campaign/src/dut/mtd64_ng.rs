//! mtd64-ng (seed 001 measures it): a pool of threads, one per core here. It listens on all addresses, goes into the
//! background, and reads `/etc/mtd64-ng.conf` and nothing else; so it lives in mount and PID namespaces of its own, where that
//! file is ours and where it ends with its first process. That takes root.

use super::{Driver, Setting};

pub(super) const DRIVER: Driver = Driver {
    name: "mtd64-ng",
    program: "mtd64-ng",
    version: &[],
    check: None,
    configuration,
    arguments: |_| Vec::new(),
};

const FILE: &str = "etc/mtd64-ng.conf";
/// $1: the folder whose `etc` lies over the system's; $2: the program.
const SCRIPT: &str = "mount -t overlay overlay -o lowerdir=\"$1/etc\":/etc /etc && \"$2\" || exit 1; \
                      trap 'exit 0' TERM; sleep infinity & wait";

/// The command that runs it.
pub(super) fn command(setting: &Setting<'_>, program: &[String]) -> Vec<String> {
    let around = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "sh", &setting.place()];
    [&around.map(str::to_owned), program].concat()
}

fn configuration(setting: &Setting<'_>) -> (&'static str, String) {
    let Setting { listen, upstream, prefix, cores, .. } = setting;
    let text = format!(
        "// {}: for {listen}\nnameserver {}\nselection-mode random\ndns64-prefix {prefix}\ndebugging no\ntimeout-time 1.0\n\
         resend-attempts 0\nresponse-maxlength 512\nnum-threads {cores}\nport {}\n",
        setting.place(),
        upstream.ip(),
        listen.port()
    );
    (FILE, text)
}
