//! mtd64-ng (D. Bakai), a server with a thread pool. It listens on all addresses, runs in the background, queries only
//! over IPv4, and reads only `/etc/mtd64-ng.conf`. The server is therefore started in two new namespaces, which require
//! root. In the mount namespace, this configuration file is replaced. Because of the PID namespace, the server ends
//! when the first process of the namespace ends. The operator's configuration lines are added to the end of the
//! configuration file.

use crate::servers::driver::{
    Driver, Program, Ready, Setting, ThreadOption, Translate, Version, words,
};

pub(super) const DRIVER: Driver<Translate> = Driver {
    name: "mtd64-ng",
    program: Program::Named("mtd64-ng"),
    version: Version::Script(VERSION),
    file: "etc/mtd64-ng.conf",
    configuration,
    command,
    check: None,
    thread_option: ThreadOption::ByConfiguration,
    ready: Ready::Answers,
    supports_ipv6: false,
    supports_xdp: false,
    later: &[],
};
/// Shell script that starts mtd64-ng. Its first argument (`$1`) is a folder, whose subfolder `etc` is mounted over the
/// system's `/etc`. Its second argument (`$2`) is the program.
const SCRIPT: &str = "mount -t overlay overlay -o lowerdir=\"$1/etc\":/etc /etc && \"$2\" || exit 1; \
                      trap 'exit 0' TERM; sleep infinity & wait";
/// Shell script that prints the version, because mtd64-ng has no version option. The version
/// consists of the commit of the checkout in which the program was built, and the SHA-256 of the
/// program.
const VERSION: &str = "commit=$(git -C \"$(dirname \"$1\")\" log -1 --format='commit %h of %as, ' 2>/dev/null); \
                       echo \"mtd64-ng, ${commit}SHA-256 $(sha256sum < \"$1\" | cut -c 1-16)\"";

fn command(setting: &Setting<'_, Translate>, program: &[String]) -> Vec<String> {
    let around = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        SCRIPT,
        "sh",
        &setting.place(),
    ];
    [&words(&around), program].concat()
}

fn configuration(setting: &Setting<'_, Translate>) -> String {
    let Setting { listen, threads, task, .. } = setting;
    let prefix = task.prefix();
    // mtd64-ng sends queries only to port 53. With several servers, mtd64-ng selects one at random
    // for each query.
    let upstreams = task.each_upstream(|ip, _| format!("nameserver {ip}\n"));
    format!(
        "// {}: for {listen}\n{upstreams}selection-mode random\ndns64-prefix {prefix}\ndebugging no\ntimeout-time 1.0\n\
         resend-attempts 0\nresponse-maxlength 512\nnum-threads {threads}\nport {}\n{}",
        setting.place(),
        listen.port(),
        setting.extra("")
    )
}
