//! CoreDNS. Its threads are the processors that Go's scheduler may use.

use super::{Driver, Setting};

pub(super) const DRIVER: Driver = Driver {
    name: "CoreDNS",
    program: "coredns",
    version: &["-version"],
    check: None,
    configuration,
    arguments: |setting| ["-conf", &setting.file(FILE)].map(str::to_owned).into(),
};

const FILE: &str = "Corefile";

fn configuration(setting: &Setting<'_>) -> (&'static str, String) {
    let Setting { listen, upstream, prefix, .. } = setting;
    let text = format!(
        "# Started in {}.\n.:{} {{\n  bind {}\n  dns64 {{\n    prefix {prefix}\n    allow_ipv4\n  }}\n  \
         cache {{\n    success 4000000\n    denial 4000000\n  }}\n  forward . {upstream}\n}}\n",
        setting.place(),
        listen.port(),
        listen.ip(),
    );
    (FILE, text)
}

/// The command that runs it.
pub(super) fn command(setting: &Setting<'_>, program: &[String]) -> Vec<String> {
    let threads = ["env".to_owned(), format!("GOMAXPROCS={}", setting.cores)];
    [&threads, program, &(DRIVER.arguments)(setting)].concat()
}
