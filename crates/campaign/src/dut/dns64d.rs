//! dns64d.

use super::{Driver, Setting};

pub(super) const DRIVER: Driver = Driver {
    name: "dns64d",
    program: "dns64d",
    version: &["--version"],
    check: Some(|setting| ["dns64d", "--config", &setting.file(FILE), "check"].map(str::to_owned).into()),
    configuration,
    arguments: |setting| vec!["--config".into(), setting.file(FILE)],
};

const FILE: &str = "dns64d.toml";

fn configuration(setting: &Setting<'_>) -> (&'static str, String) {
    let Setting { listen, upstream, prefix, cores, .. } = setting;
    // The tester's names stand for private addresses, which the well-known prefix carries only when it is told to.
    let text = format!(
        "# Started by dns64bench in {}.\nlisten = ['{listen}']\nthreads = {cores}\n\n[access]\nallow = ['::/0', '0.0.0.0/0']\n\
         open-resolver = true\n\n[cache]\nmebibytes = 1024\n\n[dns64]\nprefixes = [{{ prefix = '{prefix}', allow-non-global = true }}]\n\n\
         [[upstream]]\naddress = '{}'\nport = {}\n",
        setting.place(),
        upstream.ip(),
        upstream.port()
    );
    (FILE, text)
}
