//! dns64bench's AuthDNS. It needs no zone file, and its status socket reports the number of
//! received queries. It serves the names of trials or the names of conformance checks.

use crate::servers::driver::{
    CHECKED_ZONE, Driver, Program, Ready, Serve, ThreadOption, Version, with,
};

pub(super) const DRIVER: Driver<Serve> = Driver {
    name: "AuthDNS",
    program: Program::Own { name: "dns64bench", words: &[] },
    version: Version::Argument("--version"),
    file: "",
    configuration: |_| String::new(),
    command: |setting, program| {
        let (listen, aaaa) = (setting.listen.to_string(), setting.task.aaaa.to_string());
        let threads = setting.threads.to_string();
        let mut all = with(program, &["auth", "--listen", &listen]);
        all.extend(match &setting.task.anchors {
            None => with(&[], &["--aaaa-share", &aaaa, "--threads", &threads]),
            Some(file) => {
                let zone = format!("--conform={CHECKED_ZONE}");
                with(&[zone], &["--anchors", &file.to_string_lossy()])
            }
        });
        if let Some(mode) = setting.operator.xdp {
            all.extend(with(&[], &["--xdp", "auto", "--xdp-mode", mode.word()]));
        }
        if let Some(status) = &setting.task.status {
            all.extend(["--status".into(), status.to_string_lossy().into_owned()]);
        }
        all
    },
    check: None,
    thread_option: ThreadOption::ByCommand,
    ready: Ready::Status,
    supports_ipv6: true,
    supports_xdp: true,
    later: &[],
};
