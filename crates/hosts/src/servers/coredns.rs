//! CoreDNS. Its number of threads is set as the number of processors for Go's scheduler
//! (`GOMAXPROCS`). The operator's configuration lines are added to the server block.

use std::net::SocketAddr;

use crate::servers::driver::{
    Driver, Program, Ready, Setting, ThreadOption, Translate, Version, words,
};

const FILE: &str = "Corefile";
pub(super) const DRIVER: Driver<Translate> = Driver {
    name: "CoreDNS",
    program: Program::Named("coredns"),
    version: Version::Argument("-version"),
    file: FILE,
    configuration,
    command: |setting, program| {
        let threads = format!("GOMAXPROCS={}", setting.threads);
        [&words(&["env", &threads]), program, &words(&["-conf", &setting.file(FILE)])].concat()
    },
    check: None,
    thread_option: ThreadOption::ByCommand,
    ready: Ready::Answers,
    supports_ipv6: true,
    supports_xdp: false,
    later: &[],
};

fn configuration(setting: &Setting<'_, Translate>) -> String {
    let prefix = setting.task.prefix();
    let upstreams =
        setting.task.each_upstream(|ip, port| format!(" {}", SocketAddr::new(ip, port)));
    format!(
        "# Started in {}.\n.:{} {{\n  bind {}\n  dns64 {{\n    prefix {prefix}\n    allow_ipv4\n  }}\n  \
         cache {{\n    success 4000000\n    denial 4000000\n  }}\n  forward .{upstreams}\n{}}}\n",
        setting.place(),
        setting.listen.port(),
        setting.listen.ip(),
        setting.extra("  ")
    )
}
