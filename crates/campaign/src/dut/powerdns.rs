//! PowerDNS Recursor with `dns64-prefix`, as `key=value` file, which versions 4 and 5.0 read.

use super::{Driver, Setting};

pub(super) const DRIVER: Driver = Driver {
    name: "PowerDNS",
    program: "pdns_recursor",
    version: &["--version"],
    check: None,
    configuration,
    arguments: |setting| vec![format!("--config-dir={}", setting.place())],
};

fn configuration(setting: &Setting<'_>) -> (&'static str, String) {
    let Setting { listen, upstream, prefix, cores, .. } = setting;
    let text = format!(
        "local-address={}\nlocal-port={}\nallow-from=::/0,0.0.0.0/0\nsocket-dir={}\ndaemon=no\nthreads={cores}\n\
         pdns-distributes-queries=no\nreuseport=yes\ndnssec=off\nquiet=yes\nloglevel=3\nwrite-pid=no\n\
         forward-zones=dns64perf.test={}:{}\ndns64-prefix={prefix}\nmax-cache-entries=4000000\n\
         max-packetcache-entries=2000000\ndont-query=\n",
        listen.ip(),
        listen.port(),
        setting.place(),
        upstream.ip(),
        upstream.port()
    );
    ("recursor.conf", text)
}
