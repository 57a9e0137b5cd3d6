use std::process::Command;
use testbed::golden;

use units::Share;

use crate::servers::driver::{ANCHORS, Setting, Task, words};
use crate::servers::operator::{Operator, OperatorFile};
use crate::servers::release::Release;

use super::*;

fn translating<'a>(folder: &'a Path, operator: &'a Operator) -> Setting<'a, Translate> {
    let task = Translate {
        upstreams: vec!["198.18.0.2:53".parse().unwrap()],
        prefixes: vec!["64:ff9b::/96".parse().unwrap()],
        checked: None,
    };
    Setting {
        folder,
        listen: "[2001:2::1]:53".parse().unwrap(),
        cores: 2,
        threads: 2,
        operator,
        task,
    }
}

fn serving<'a>(folder: &'a Path, operator: &'a Operator) -> Setting<'a, Serve> {
    let task = Serve {
        zone: ZONE_FILE.into(),
        aaaa: Share::ONE,
        status: Some("/run/status".into()),
        anchors: None,
    };
    Setting {
        folder,
        listen: "198.18.0.2:53".parse().unwrap(),
        cores: 2,
        threads: 2,
        operator,
        task,
    }
}

/// Returns the setting with a second AuthDNS server.
fn asking_two(mut setting: Setting<'_, Translate>) -> Setting<'_, Translate> {
    setting.task.upstreams.push("198.18.0.3:53".parse().unwrap());
    setting
}

/// Returns the setting of [`translating`], with the configuration of `variant` for conformance
/// checks.
fn checked_as<'a>(
    variant: &Variant,
    folder: &'a Path,
    operator: &'a Operator,
) -> Setting<'a, Translate> {
    let key =
        "+mofH3IFBoMah4Uc1DSCz5zVSbAaLGnijS42sX4URopDxLVVSyaV8FAuTZe5BDo1fbVMQu6d3amkc8rpvoCgyA==";
    let digest = "bab33ecadd9e70fbafb2ca620a51e3b609c490e7ca335673a962aa8dcd5ed104";
    let of = |zone: &str| {
        [
            format!("{zone}.conform.example. 300 IN DNSKEY 257 3 13 {key}"),
            format!("{zone}.conform.example. 300 IN DS 2929 13 2 {digest}"),
        ]
    };
    let checked = Checked::for_variant(variant, &[of("secure"), of("bogus")].concat());
    let setting = translating(folder, operator);
    let prefixes = variant.prefixes(setting.task.prefix());
    Setting { task: Translate { checked: Some(checked), prefixes, ..setting.task }, ..setting }
}

/// Returns all variants of a server, for a plan with the prefix of [`translating`].
fn variants(dut: Dut) -> Vec<Variant> {
    dut.variants("64:ff9b::/96".parse().unwrap())
}

/// Returns all DUTs except `custom`, which needs commands in the plan.
fn duts() -> impl Iterator<Item = Dut> {
    Dut::ALL.iter().copied().filter(|&dut| dut != Dut::Custom)
}

/// Returns all drivers of the servers of [`duts`], each with a name and the server. The name of a
/// driver for later releases contains the first of these releases.
fn drivers() -> impl Iterator<Item = (String, Dut, &'static Driver<Translate>)> {
    duts().flat_map(|dut| {
        let later = dut.driver().later.iter().map(move |(Release(major, minor), driver)| {
            (format!("{dut:?}-{major}.{minor}"), dut, driver)
        });
        std::iter::once((format!("{dut:?}"), dut, dut.driver())).chain(later)
    })
}

/// Each configuration contains the addresses and the prefix, and the command contains the server's
/// folder.
#[test]
fn configurations_contain_the_setting() {
    let none = Operator::default();
    for (name, _, driver) in drivers() {
        let setting = translating(Path::new("/run/x"), &none);
        let text = driver.configuration(&setting);
        for word in ["2001:2::1", "198.18.0.2", "64:ff9b::"] {
            assert!(text.contains(word), "{name} has no {word}:\n{text}");
        }
        assert!(driver.command(&setting, &[]).join(" ").contains("/run/x"), "{name}");
    }
}

#[test]
fn driver_follows_the_release() {
    for (dut, printed, file) in [
        (Dut::Powerdns, "PowerDNS Recursor 4.8.8 (C) 2001-2022", "recursor.conf"),
        (Dut::Powerdns, "PowerDNS Recursor 5.0.0-alpha1", "recursor.yml"),
        (Dut::Powerdns, "PowerDNS Recursor 5.4.9 (C) PowerDNS.COM BV", "recursor.yml"),
        (Dut::Powerdns, "PowerDNS Recursor 0.0.21547.0.master", "recursor.yml"),
        (Dut::Powerdns, "unknown", "recursor.yml"),
        (Dut::Bind, "BIND 9.18.49", "named.conf"),
    ] {
        assert_eq!(dut.driver().for_release(Release::parse(printed)).file, file, "{printed}");
    }
    let none = Operator::default();
    let setting = translating(Path::new("/run/x"), &none);
    let forwarding = |printed: &str| {
        let driver = Dut::KnotResolver.driver().for_release(Release::parse(printed));
        driver.configuration(&setting).contains("policy.rule_forward_add(")
    };
    let [five, six] = ["5.7.5", "6.0.15"].map(|of| format!("Knot Resolver, version {of}"));
    assert!(!forwarding(&five) && forwarding(&six));
    // `for_release` needs the later drivers in ascending order of their releases.
    for dut in duts() {
        assert!(dut.driver().later.is_sorted_by(|(a, _), (b, _)| a < b), "{dut:?}");
    }
}

#[test]
fn operators_lines_override_the_yaml_of_powerdns() {
    let line = |line: &str| Operator { extra: vec![line.into()], ..Operator::default() };
    let command = |operator: &Operator| {
        let driver = Dut::Powerdns.driver().for_release(Release(5, 2));
        driver.command(&translating(Path::new("/run/x"), operator), &["PROGRAM".into()])
    };
    for (given, option) in [
        ("packetcache-ttl=60", "--packetcache-ttl=60"),
        ("packetcache-ttl = 60", "--packetcache-ttl=60"),
        ("dont-query=", "--dont-query="),
    ] {
        assert_eq!(command(&line(given)), ["PROGRAM", "--config-dir=/run/x", option]);
    }
}

/// Checks that the number of threads or processes of a server is configured: a different number
/// must change the command or the configuration file.
#[test]
fn every_server_is_configured_with_its_threads() {
    fn command_and_config<T: Task + Clone>(driver: &Driver<T>, setting: &Setting<'_, T>) -> String {
        let both = |threads| {
            let setting = Setting { threads, ..setting.clone() };
            format!(
                "{} {}",
                driver.command(&setting, &[]).join(" "),
                driver.configuration(&setting)
            )
        };
        let (few, many) = (both(2), both(7));
        assert!(few != many && many.contains('7'), "{}:\n{many}", driver.name);
        assert!(driver.configures_threads(setting.operator));
        many
    }
    let none = Operator::default();
    for (_, _, driver) in drivers() {
        command_and_config(driver, &translating(Path::new("/run/x"), &none));
    }
    for auth in Auth::ALL {
        command_and_config(auth.driver(), &serving(Path::new("/run/x"), &none));
    }
    let own = |text: &str| Operator {
        config: Some(OperatorFile { path: "x".into(), text: text.into() }),
        ..none.clone()
    };
    assert!(
        !Dut::Unbound.driver().configures_threads(&own("num-threads: 4")),
        "the author of the file decides"
    );
    assert!(Dut::Unbound.driver().configures_threads(&own("num-threads: {threads}")));
    assert!(
        Dut::Bind.driver().configures_threads(&own("options { };")),
        "BIND's threads are set by its command"
    );
    let custom = |start: &str| Operator {
        custom: Some(Custom { start: vec!["x".into(), start.into()], ..Custom::default() }),
        ..none.clone()
    };
    assert!(!Dut::Custom.driver().configures_threads(&custom("-v")));
    assert!(Dut::Custom.driver().configures_threads(&custom("-t{cores}")));
}

/// Compares whole configuration files with reviewed golden files, because the configuration affects
/// the results. `BLESS=1` rewrites the golden files.
#[test]
fn configurations_match_the_golden_files() {
    let none = Operator::default();
    let program = ["PROGRAM".to_owned()];
    for (name, dut, driver) in drivers() {
        let setting = translating(Path::new("/run/x"), &none);
        let (words, text) =
            (driver.command(&setting, &program).join(" "), driver.configuration(&setting));
        golden::check(
            env!("CARGO_MANIFEST_DIR"),
            &name,
            &format!("{words}\n--- {}\n{text}", driver.file),
        );
        let setting_of_checks = checked_as(&Variant::Usual, Path::new("/run/x"), &none);
        let text = driver.configuration(&setting_of_checks);
        let anchors = setting_of_checks.task.checked.as_ref().map(|checked| dut.anchors(checked));
        let (file, anchors) = anchors.unwrap();
        // The key or its digest is in the configuration, or in the file to which the configuration
        // refers.
        let has = |text: &str| {
            text.contains("+mofH3IFBoMah4Uc1DSCz5z") || text.contains("bab33ecadd9e70fb")
        };
        let is_told = has(&text) || text.contains(file) && has(&anchors);
        assert_eq!(dut.validates(), Some(is_told), "{name}");
        let mut all = format!("--- {}\n{text}--- {file}\n{anchors}", driver.file);
        for variant in &variants(dut)[1..] {
            let setting = checked_as(variant, Path::new("/run/x"), &none);
            all.push_str(&format!(
                "--- {variant}\n{}",
                differing(&text, &driver.configuration(&setting))
            ));
        }
        golden::check(env!("CARGO_MANIFEST_DIR"), &format!("conform-{name}"), &all);
    }
    let mut setting = serving(Path::new("/run/x"), &none);
    setting.task.anchors = Some("/run/anchors".into());
    let words = Auth::Dns64bench.driver().command(&setting, &program).join(" ");
    golden::check(env!("CARGO_MANIFEST_DIR"), "auth-conform", &format!("{words}\n"));
    for auth in Auth::ALL {
        let (driver, setting) = (auth.driver(), serving(Path::new("/run/x"), &none));
        let (words, text) =
            (driver.command(&setting, &program).join(" "), driver.configuration(&setting));
        golden::check(
            env!("CARGO_MANIFEST_DIR"),
            &format!("auth-{auth:?}"),
            &format!("{words}\n--- {}\n{text}", driver.file),
        );
    }
}

/// Returns the lines that are only in `usual`, each after a `-`, and the lines that are only in
/// `text`, each after a `+`.
fn differing(usual: &str, text: &str) -> String {
    let lacks = |of: &str, line: &str| !of.lines().any(|other| other == line);
    let gone = usual.lines().filter(|line| lacks(text, line)).map(|line| format!("-{line}\n"));
    let new = text.lines().filter(|line| lacks(usual, line)).map(|line| format!("+{line}\n"));
    gone.chain(new).collect()
}

/// Returns a configuration line that is valid in the main section of the server `name`.
fn extra(name: &str) -> &'static str {
    match name {
        "BIND" => "minimal-responses yes;",
        "Unbound" => "serve-expired: yes",
        "PowerDNS" => "packetcache-ttl=60",
        "dns64d" => "[limits]\nin-flight = 5",
        "NSD" => "tcp-count: 10",
        "Knot DNS" => "tcp-workers: 2",
        _ => "",
    }
}

/// A trust anchor.
const ANCHOR: &str =
    ". IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D\n";

/// Runs a server's checker on three configurations: the driver's configuration, that configuration
/// with a line from the operator, and that configuration with an invalid last line. Returns the
/// three verdicts, or `None` if the checker is not installed.
fn checked<T: Task>(
    driver: &Driver<T>,
    setting: impl Fn(&Operator) -> String,
) -> Option<[bool; 3]> {
    let line = |line: &str| Operator { extra: vec![line.to_owned()], ..Operator::default() };
    let none = Operator::default();
    let all = [(&none, ""), (&line(extra(driver.name)), ""), (&none, "no-such-thing: {{{\n")];
    let mut good = [false; 3];
    for ((operator, end), good) in all.into_iter().zip(&mut good) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(driver.file);
        let words = driver.checker(&file.to_string_lossy())?;
        let program = program_of_the_checker(&words[0])?;
        std::fs::write(
            &file,
            setting(operator).replace("/run/x", &folder.path().to_string_lossy()) + end,
        )
        .unwrap();
        std::fs::write(folder.path().join(ZONE_FILE), "@ SOA a. b. 1 1 1 1 1\n@ NS a.\n").unwrap();
        std::fs::write(folder.path().join(ANCHORS), ANCHOR).unwrap();
        let output = Command::new(program).args(&words[1..]).output().unwrap();
        *good = output.status.success();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        println!("{} {words:?}: {}\n{said}", driver.name, output.status);
    }
    Some(good)
}

/// Returns the release of the installed program, or `Release::UNKNOWN` if the driver does not
/// depend on it.
fn installed(driver: &Driver<Translate>) -> Release {
    let program = driver.program_name().and_then(|name| find(Path::new(name)));
    let Some(program) = program.filter(|_| driver.depends_on_release()) else {
        return Release::UNKNOWN;
    };
    let program = [program.to_string_lossy().into_owned()];
    let words = driver.version_command(&Operator::default(), &program);
    let output = Command::new(&words[0]).args(&words[1..]).output().unwrap();
    Release::parse(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat()))
}

/// Returns the path of a checker. dns64d is in the parent of the test program's folder, and the
/// others are on the `PATH`.
fn program_of_the_checker(name: &str) -> Option<PathBuf> {
    let exe = std::env::current_exe().unwrap();
    let beside = exe.parent().unwrap().parent().unwrap().join(name);
    if beside.is_file() { Some(beside) } else { find(Path::new(name)) }
}

/// Environment variable with the names of the servers whose checkers must be installed. `cargo
/// xtask test` installs these checkers and sets the variable.
const MUST_CHECK: &str = "DNS64BENCH_MUST_CHECK";

#[test]
fn the_servers_own_checkers_accept_them() {
    let mut missing = Vec::new();
    let mut judge = |name: &'static str, good: Option<[bool; 3]>| match good {
        Some(good) => {
            assert_eq!(good, [true, true, false], "{name}: plain, with a line, with nonsense");
        }
        None => missing.push(name),
    };
    for dut in duts().filter(|dut| dut.driver().checker("x").is_some()) {
        let driver = dut.driver().for_release(installed(dut.driver()));
        let text =
            |operator: &Operator| driver.configuration(&translating(Path::new("/run/x"), operator));
        judge(dut.name(), checked(driver, text));
        let text = |operator: &Operator| {
            driver.configuration(&asking_two(translating(Path::new("/run/x"), operator)))
        };
        judge(dut.name(), checked(driver, text));
        if driver.supports_xdp {
            let text = |operator: &Operator| {
                let operator = Operator { xdp: Some(net::xdp::Mode::Copy), ..operator.clone() };
                driver.configuration(&translating(Path::new("/run/x"), &operator))
            };
            judge(dut.name(), checked(driver, text));
        }
        for variant in variants(dut) {
            let text = |operator: &Operator| {
                driver.configuration(&checked_as(&variant, Path::new("/run/x"), operator))
            };
            // The file of trust anchors does not exist here, but no checker reads it.
            judge(dut.name(), checked(driver, text));
        }
    }
    for auth in Auth::ALL.iter().filter(|auth| auth.driver().checker("x").is_some()) {
        let text = |operator: &Operator| {
            auth.driver().configuration(&serving(Path::new("/run/x"), operator))
        };
        judge(auth.name(), checked(auth.driver(), text));
    }
    let must = std::env::var(MUST_CHECK).unwrap_or_default();
    let missed: Vec<_> =
        missing.iter().filter(|name| must.split(',').any(|word| word == **name)).collect();
    assert!(missed.is_empty(), "not installed: {missed:?}");
    missing.dedup();
    for name in missing {
        testbed::note_skipped(&format!("the checker of {name}"), "not installed");
    }
}

#[test]
fn every_server_is_configured_with_each_authdns() {
    let operator = Operator::default();
    for (name, _, driver) in drivers() {
        let setting = asking_two(translating(Path::new("/f"), &operator));
        let text = driver.configuration(&setting);
        for address in ["198.18.0.2", "198.18.0.3"] {
            assert!(text.contains(address), "{name}: {text}");
        }
    }
}

#[test]
fn dns64d_and_authdns_are_configured_for_xdp() {
    let operator = Operator { xdp: Some(net::xdp::Mode::Generic), ..Operator::default() };
    let setting = translating(Path::new("/f"), &operator);
    let text = Dut::Dns64d.driver().configuration(&setting);
    for line in [
        "listen = [{ address = '[2001:2::1]:53', xdp = true }]\nxdp-mode = 'generic'\nxdp-fallback = false\nthreads",
        "[[upstream]]\naddress = '198.18.0.2'\nport = 53\nxdp = true\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let command = Auth::Dns64bench.driver().command(&serving(Path::new("/f"), &operator), &[]);
    let has_mode =
        command.windows(4).any(|four| four == ["--xdp", "auto", "--xdp-mode", "generic"]);
    assert!(has_mode, "{command:?}");
}

#[test]
fn custom_commands_and_own_files_are_filled_in() {
    let start = ["x", "{listen}#{port}", "-t{threads}", "{folder}/server.conf"];
    let operator = Operator {
        custom: Some(Custom { start: words(&start), ..Custom::default() }),
        config: Some(OperatorFile {
            path: "own".into(),
            text: "{upstream} {upstream-port} {prefix} {cores} {zone}".into(),
        }),
        ..Operator::default()
    };
    let setting = translating(Path::new("/f"), &operator);
    let driver = Dut::Custom.driver();
    assert_eq!(driver.command(&setting, &[]), ["x", "2001:2::1#53", "-t2", "/f/server.conf"]);
    assert_eq!(driver.configuration(&setting), "198.18.0.2 53 64:ff9b::/96 2 {zone}");
    let serving = serving(Path::new("/f"), &operator);
    let text = Auth::Nsd.driver().configuration(&serving);
    assert_eq!(text, "{upstream} {upstream-port} {prefix} 2 dns64perf.test.zone");
}

#[test]
fn all_words_of_plans_are_those_of_their_kinds() {
    let duts =
        ["bind", "unbound", "powerdns", "knot-resolver", "coredns", "mtd64-ng", "dns64d", "custom"];
    assert_eq!(serde_json::to_value(Dut::ALL).unwrap(), serde_json::json!(duts));
    let auths = ["dns64bench", "nsd", "knot", "bind", "yadifa"];
    assert_eq!(serde_json::to_value(Auth::ALL).unwrap(), serde_json::json!(auths));
}
