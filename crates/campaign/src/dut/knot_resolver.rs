//! Knot Resolver 5 (`kresd`): one process per core is its way; this driver measures one process.

use super::{Driver, Setting};

pub(super) const DRIVER: Driver = Driver {
    name: "Knot Resolver",
    program: "kresd",
    version: &["--version"],
    check: None,
    configuration,
    arguments: |setting| vec!["-n".into(), "-q".into(), "-c".into(), setting.file(FILE), setting.place()],
};

const FILE: &str = "kresd.conf";

fn configuration(setting: &Setting<'_>) -> (&'static str, String) {
    let Setting { listen, upstream, prefix, .. } = setting;
    let network = prefix.to_string();
    let network = network.split('/').next().unwrap_or_default();
    let text = format!(
        "net.listen('{}', {}, {{ kind = 'dns' }})\nnet.ipv6 = true\ntrust_anchors.remove('.')\n\
         modules = {{ 'policy', dns64 = '{network}' }}\ncache.size = 1 * GB\n\
         policy.add(policy.suffix(policy.FORWARD('{}@{}'), {{ todname('dns64perf.test') }}))\n",
        listen.ip(),
        listen.port(),
        upstream.ip(),
        upstream.port()
    );
    (FILE, text)
}
