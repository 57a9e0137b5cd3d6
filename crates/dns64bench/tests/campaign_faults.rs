//! Campaigns with faults: changed plans, servers that do not start, hosts that misbehave, interruptions.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use testbed::wait_until;

use common::{LENIENT_TRIAL, PROGRAM, dns64bench, journal, output_text, run_in, signal_in_a_trial};

/// Returns a plan with this topology, the lines that all plans in this file have, and `rest`.
fn plan_of(topology: &str, rest: &str) -> String {
    format!(
        "topology = '{topology}'\nname = 'test'\n[trial]\nduration = '200ms'\n{LENIENT_TRIAL}\
         [search]\nmin = 100\nmax = 100\nresolution = 100\nrepeat = 1\ninvalid-retries = 20\n{rest}"
    )
}

fn plan(rest: &str) -> String {
    plan_of("loopback", rest)
}

/// Runs a command that must end with `status` and print all of `words`; returns its output.
fn ends(folder: &Path, args: &[&str], status: i32, words: &[&str]) -> String {
    let output = run_in(folder, args);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{args:?} does not say {word}: {text}");
    }
    text
}

fn script(path: &Path, text: &str) -> PathBuf {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    path.into()
}

/// Returns a plan whose DUT is dns64d, started by a script. The script counts its starts, and first runs `what` on
/// starts `from` to `to`.
fn server(folder: &Path, from: u32, to: u32, what: &str) -> String {
    let count = folder.join("count");
    let text = format!(
        "[ \"$1\" != --version ] || exec {PROGRAM} dns64d \"$@\"\necho x >> {count}\nn=$(wc -l < {count})\n\
         if [ $n -ge {from} ] && [ $n -le {to} ]; then {what}; fi\nexec {PROGRAM} dns64d \"$@\"",
        count = count.display()
    );
    let path = script(&folder.join("server"), &text);
    plan(&format!("[[dut]]\ndriver = 'dns64d'\nprogram = '{}'\n", path.display()))
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn started(folder: &Path, args: &[&str]) -> Child {
    dns64bench(folder, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// AuthDNS never answers within a microsecond.
#[test]
fn a_failed_self_test_ends_a_campaign_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let self_test = "[self-test]\nmin = 100\nmax = 100\nresolution = 1\nrepeat = 1\n[[dut]]\ndriver = 'dns64d'\n";
    let slow = plan(self_test).replace("auth-limit = '30s'", "auth-limit = '1us'");
    fs::write(folder.join("plan.toml"), slow).unwrap();
    let words = [
        "self-test failed: no rate passed",
        "campaign resume plan-run --redo self-test",
        "--keep-going",
    ];
    ends(folder, &["campaign", "run", "plan.toml"], 3, &words);
    ends(folder, &["campaign", "status", "plan.toml"], 0, &["failed"]);
    let trials = || journal(folder).iter().filter(|line| line.get("finished").is_some()).count();
    let before = trials();
    ends(folder, &["campaign", "resume", "plan-run"], 3, &words);
    assert_eq!(trials(), before, "nothing is repeated");
    ends(folder, &["campaign", "resume", "plan-run", "--redo", "self-test"], 3, &words);
    assert!(trials() > before, "the self-test is repeated");
}

#[test]
fn resume_requires_the_original_plan() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let begun = plan("[[dut]]\ndriver = 'dns64d'\n");
    fs::write(folder.join("plan.toml"), &begun).unwrap();
    ends(folder, &["campaign", "run", "plan.toml", "--quiet"], 0, &[]);
    let first = &journal(folder)[0];
    assert_eq!(first["begun"]["plan"]["trial"]["duration"], "200ms", "{first}");

    // A different spelling of the same value is not a change.
    fs::write(
        folder.join("plan.toml"),
        begun.replace("'200ms'\ntimeout", "'0.2s' # short\ntimeout").replace("0.2s", "200000us"),
    )
    .unwrap();
    ends(folder, &["campaign", "resume", "plan.toml", "--quiet"], 0, &[]);
    let other =
        begun.replace("'200ms'\ntimeout", "'60s'\ntimeout").replace("max = 100", "max = 4000")
            + "name = 'other'\n";
    fs::write(folder.join("plan.toml"), &other).unwrap();
    let keys = ["trial.duration", "search.max", "dut[0].name"];
    let text = ends(folder, &["campaign", "resume", "plan.toml"], 2, &keys);
    assert!(text.contains("another run folder") && text.contains("restore"), "{text}");
    // The folder itself is unchanged.
    ends(folder, &["campaign", "resume", "plan-run", "--quiet"], 0, &[]);

    let own = folder.join("plan-run/plan.toml");
    let text = fs::read_to_string(&own).unwrap();
    fs::write(&own, text.replacen("\"200ms\"", "\"60s\"", 1)).unwrap();
    ends(folder, &["campaign", "resume", "plan-run"], 2, &["trial.duration"]);
    ends(folder, &["campaign", "status", "plan-run"], 0, &["trial.duration", "done"]);
    ends(folder, &["report", "plan-run"], 0, &["trial.duration"]);
    let page = fs::read_to_string(folder.join("plan-run/report.html")).unwrap();
    assert!(page.contains("trial.duration"), "the report says so");
    let results: Value =
        serde_json::from_slice(&fs::read(folder.join("plan-run/results.json")).unwrap()).unwrap();
    assert_eq!(
        results["plan"]["trial"]["duration"], "200ms",
        "trials of 200 ms are not told as ones of 60 s"
    );
    fs::write(&own, text).unwrap();

    let path = folder.join("plan-run/journal.jsonl");
    let lines = fs::read_to_string(&path).unwrap();
    // The format of version 1.
    fs::write(&path, format!("{{\"plan\":{}}}\n", first["begun"]["plan"])).unwrap();
    for args in [
        &["campaign", "resume", "plan-run"][..],
        &["campaign", "status", "plan-run"],
        &["report", "plan-run"],
    ] {
        ends(folder, args, 2, &["format version 1", "reads version 2"]);
    }
    fs::write(&path, lines.split_once('\n').unwrap().1).unwrap();
    for args in [
        &["campaign", "resume", "plan-run"][..],
        &["campaign", "status", "plan-run"],
        &["report", "plan-run"],
    ] {
        ends(folder, args, 2, &["does not contain the plan"]);
    }
}

/// The name of the folder looks like an option to the programs that are started with it.
#[test]
fn a_run_folder_may_begin_with_a_minus_sign() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("plan.toml"), plan("[[dut]]\ndriver = 'dns64d'\n")).unwrap();
    ends(folder, &["campaign", "run", "plan.toml", "--dir=-x", "--quiet"], 0, &["-x/report.html"]);
    ends(folder, &["campaign", "resume", "--quiet", "--", "-x"], 0, &[]);
    ends(folder, &["report", "--", "-x"], 0, &[]);
    // This journal is that of a campaign that was killed before it wrote the first line.
    fs::write(folder.join("-x/journal.jsonl"), "").unwrap();
    ends(folder, &["report", "--", "-x"], 2, &["-x is empty"]);
}

#[test]
fn missing_objects_of_a_plan_are_reported_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (rest, words) in [
        (
            "[[dut]]\ndriver = 'unbound'\nprogram = '/no/such/unbound'\n",
            &["host dut", "/no/such/unbound"][..],
        ),
        (
            "[[dut]]\ndriver = 'custom'\ncustom = { start = ['/no/such/server'] }\n",
            &["/no/such/server"],
        ),
        (
            "[cpus]\ndut = [4000]\n[[dut]]\ndriver = 'dns64d'\n",
            &["[cpus] dut", "4000", "host dut has"],
        ),
        (
            "[measure]\ncores = [4000]\n[[dut]]\ndriver = 'dns64d'\n",
            &["[measure] cores", "4000", "host dut has"],
        ),
    ] {
        fs::write(folder.join("plan.toml"), plan(rest)).unwrap();
        let words = [&["Missing: "][..], words].concat();
        ends(folder, &["campaign", "plan", "plan.toml"], 0, &words);
        ends(folder, &["campaign", "run", "plan.toml"], 2, &words[1..]);
        assert!(!folder.join("plan-run").exists(), "nothing is begun");
    }
    for (rest, word) in [
        ("[[dut]]\ndriver = 'custom'\ncustom = { start = ['x', '{prot}'] }\n", "{prot}"),
        ("[[dut]]\ndriver = 'dns64d'\nname = '../evil'\n", "path separators"),
    ] {
        fs::write(folder.join("plan.toml"), plan(rest)).unwrap();
        ends(folder, &["campaign", "run", "plan.toml"], 2, &[word]);
    }
    let ssh = "[ssh]\ndut = { host = 'far' }\naddresses = { dut = '192.0.2.1:53', auth = '203.0.113.1:53' }\n";
    fs::write(
        folder.join("plan.toml"),
        plan_of("ssh", &format!("{ssh}[[dut]]\ndriver = 'unbound'\n")),
    )
    .unwrap();
    let words = [
        "far (dut)",
        "192.0.2.1:53: cannot be checked from here",
        "203.0.113.1:53: this machine has no such address",
    ];
    ends(folder, &["campaign", "plan", "plan.toml"], 0, &words);
}

#[test]
fn failing_server_is_reported_before_self_test() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let start = "start = ['sh', '-c', 'printf \"\\u001b[31mthe reason\\n\" >&2; exit 3']";
    let rest = format!(
        "[self-test]\nmin = 200\nmax = 200\n[[dut]]\ndriver = 'custom'\nname = 'broken'\n[dut.custom]\n{start}\n"
    );
    fs::write(folder.join("plan.toml"), plan(&rest.replace("\\u001b", "\\033"))).unwrap();
    let words = ["broken did not start", "exit status: 3", "the reason", "servers/broken-"];
    let text = ends(folder, &["campaign", "run", "plan.toml"], 4, &words);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(
        journal(folder).iter().all(|entry| entry.get("started").is_none()),
        "nothing is measured"
    );
}

#[test]
fn failing_server_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rest = "[[dut]]\ndriver = 'custom'\nname = 'broken'\ncustom = { start = ['sh', '-c', 'exit 3'] }\n\
                [[dut]]\ndriver = 'dns64d'\n";
    fs::write(folder.join("plan.toml"), plan(rest)).unwrap();
    let words = ["broken did not start: exit status: 3", "without a result: broken, 1 core"];
    let text = ends(folder, &["campaign", "run", "plan.toml", "--quiet"], 3, &words);
    assert!(!text.contains("without a result: dns64d"), "{text}");
    let page = fs::read_to_string(folder.join("plan-run/report.html")).unwrap();
    assert!(page.contains("not measured: broken did not start: exit status: 3"));
}

#[test]
fn configuration_follows_the_printed_version() {
    for (version, file) in [("4.8.8", "recursor.conf"), ("5.4.9", "recursor.yml")] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let text = format!(
            "[ \"$1\" != --version ] || exec echo 'PowerDNS Recursor {version} (C)'\nls \"${{1#*=}}\" >&2; exit 7"
        );
        let program = script(&folder.join("recursor"), &text);
        let dut = format!("[[dut]]\ndriver = 'powerdns'\nprogram = '{}'\n", program.display());
        fs::write(folder.join("plan.toml"), plan(&dut)).unwrap();
        ends(folder, &["campaign", "run", "plan.toml"], 4, &["exit status: 7", file]);
    }
}

#[test]
fn dut_is_restarted_after_one_failed_start() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("plan.toml"), server(folder, 2, 2, "exit 7")).unwrap();
    ends(folder, &["campaign", "run", "plan.toml"], 0, &["it is started again"]);
}

#[test]
fn points_without_result_are_listed_with_status() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("plan.toml"), server(folder, 2, 1000, "exit 7")).unwrap();
    let words = ["without a result: dns64d, 1 core", "exit status: 7", "report.html"];
    ends(folder, &["campaign", "run", "plan.toml", "--quiet"], 3, &words);
    assert!(folder.join("plan-run/report.html").exists());
    let incidents = journal(folder).iter().filter(|entry| entry.get("mishap").is_some()).count();
    assert_eq!(incidents, 2, "one second chance, and no more");
}

/// Returns the command that runs a campaign whose DUT is on a host reached through the script `ssh`.
fn with_ssh(folder: &Path, ssh: &str, args: &[&str]) -> Command {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    script(&bin.join("ssh"), &format!("touch {}\n{ssh}", folder.join("called").display()));
    let hosts = "[ssh]\ndut = { host = 'far' }\naddresses = { dut = '[::1]:10053', auth = '127.0.0.1:10054' }\n";
    fs::write(
        folder.join("plan.toml"),
        plan_of("ssh", &format!("{hosts}[[dut]]\ndriver = 'dns64d'\n")),
    )
    .unwrap();
    let mut command = dns64bench(folder, args);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", bin.display()));
    command
}

#[test]
fn misbehaving_host_ends_campaign_with_clear_error() {
    for (ssh, word) in [
        ("exec cat /dev/zero", "larger than 8 MiB"),
        ("exec yes '\u{1b}[31m{\"version\": 7}'", "does not begin with the agent's greeting"),
        ("printf '\\033[2Jgo away\\033]0;title\\007\\n' >&2; exit 255", "go away"),
        ("echo '{\"version\": \"\u{1b}]0;evil\u{7}9\"}'; sleep 100", "far"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output =
            with_ssh(folder.path(), ssh, &["campaign", "run", "plan.toml"]).output().unwrap();
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(4), "{ssh}: {text}");
        assert!(text.contains(word) && text.contains("far"), "{ssh}: {text}");
        assert!(!text.contains('\u{1b}') && text.len() < 20_000, "{ssh}: {text:?}");
    }
}

/// The host is silent from the start, or after a greeting with the correct version. In both cases a request is pending.
#[test]
fn a_silent_host_does_not_keep_the_user_from_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let agent = dns64bench(folder.path(), &["agent", "--folder", "agents"]).output().unwrap();
    let greeting = folder.path().join("greeting");
    fs::write(&greeting, &agent.stdout).unwrap();
    for (ssh, signals) in [
        ("touch silent; exec sleep 1000".to_owned(), &["-INT"][..]),
        (format!("cat {}; touch silent; exec sleep 1000", greeting.display()), &["-TERM", "-INT"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut command =
            with_ssh(folder, &ssh, &["campaign", "run", "plan.toml", "--dir", "my-run"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the host is not silent yet", || folder.join("silent").exists());
        // Each of two different signals counts, however close they follow each other.
        for name in signals {
            signal(&child, name);
        }
        let output = child.wait_with_output().unwrap();
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(130), "{ssh}: {text}");
        assert!(text.contains("dns64bench campaign resume my-run"), "{ssh}: {text}");
    }
}

/// Writes a plan whose server never answers, and only creates the file `asked` when it is asked to end. Returns the
/// path of the file with the server's process id.
fn stubborn(folder: &Path) -> PathBuf {
    let pid = folder.join("pid");
    let text = format!(
        "trap '' INT\ntrap 'touch {}' TERM\necho $$ > {}\nwhile :; do sleep 0.2; done",
        folder.join("asked").display(),
        pid.display()
    );
    let path = script(&folder.join("stubborn"), &text);
    let rest = format!(
        "[[dut]]\ndriver = 'custom'\nname = 'stubborn'\ncustom = {{ start = ['{}'] }}\n",
        path.display()
    );
    fs::write(folder.join("plan.toml"), plan(&rest)).unwrap();
    pid
}

#[test]
fn first_signal_ends_cleanly_second_immediately() {
    for signals in [&["-INT"][..], &["-TERM", "-TERM"]] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let pid = stubborn(folder);
        let child = started(folder, &["campaign", "run", "plan.toml"]);
        let text = || fs::read_to_string(&pid).unwrap_or_default();
        wait_until("the server does not start", || text().ends_with('\n'));
        for (number, name) in signals.iter().enumerate() {
            // The second signal is sent after the first was handled, because two at once may count as one.
            wait_until("the server is not asked to end", || {
                number == 0 || folder.join("asked").exists()
            });
            signal(&child, name);
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{signals:?}: {}", output_text(&output));
        assert!(
            output_text(&output).contains("dns64bench campaign resume plan-run"),
            "{}",
            output_text(&output)
        );
        let stat = Path::new("/proc").join(text().trim()).join("stat");
        // The server may have ended although its new parent has not collected its exit status yet.
        let is_gone = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        wait_until("the server is still there", is_gone);
    }
}

/// Runs in a separate mount namespace without other labs. After a kill and a resume, the campaign's lab is removed. A
/// lab that existed before stays.
#[test]
fn resume_removes_own_lab_but_no_foreign_lab() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rest = plan("[[dut]]\ndriver = 'dns64d'\n")
        .replace("loopback", "lab")
        .replace("repeat = 1", "repeat = 20");
    fs::write(folder.join("plan.toml"), rest).unwrap();
    let text = format!(
        "mount -t tmpfs none /run && mkdir /run/netns && {PROGRAM} lab up && {PROGRAM} lab down || {{ echo SKIPPED; exit 0; }}\n\
         {PROGRAM} campaign run plan.toml --quiet & p=$!\n\
         n=0; while ! grep -q finished plan-run/journal.jsonl 2>/dev/null; do sleep 0.1; n=$((n+1)); [ $n -lt 900 ] || exit 9; done\n\
         kill -9 $p; wait $p; [ -s plan-run/lab ] || exit 10; [ -e /run/netns/dns64bench-dut ] || exit 11\n\
         {PROGRAM} campaign resume plan.toml --quiet || exit 12\n\
         [ ! -e plan-run/lab ] || exit 13; [ ! -e /run/netns/dns64bench-dut ] || exit 14\n\
         {PROGRAM} lab up; {PROGRAM} campaign run plan.toml --dir second --quiet || exit 15\n\
         [ ! -e second/lab ] || exit 16; [ -e /run/netns/dns64bench-dut ] || exit 17; {PROGRAM} lab down"
    );
    let path = script(&folder.join("steps"), &text);
    let mut command = Command::new("unshare");
    command.current_dir(folder).args(["--mount", "--net"]).arg(path).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.code() == Some(1) => {
            testbed::skip("the lab", &output_text(&output));
        }
        Ok(output) if output_text(&output).contains("SKIPPED") => {
            testbed::skip("the lab", &output_text(&output));
        }
        Ok(output) => assert!(output.status.success(), "{}", output_text(&output)),
        Err(error) => testbed::skip("the lab", &format!("unshare: {error}")),
    }
}

/// Runs a campaign with a load, and sends `signal` to dns64d during the load. Returns the result of the load. Returns
/// the reasons as an error if the trial is invalid, in which case the campaign repeats the trial with a new server.
fn loaded(signal: &str) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let load = "[measure.loads]\nshares = [1]\nduration = '5s'\ntransient = '1s'\nrepeat = 1\n";
    let plan = server(folder, 1, 1_000, &format!("echo $$ > {}", folder.join("pid").display()));
    fs::write(folder.join("plan.toml"), plan.replace("[[dut]]", &format!("{load}[[dut]]")))
        .unwrap();
    let output = signal_in_a_trial(folder, "load", signal);
    assert!(output.status.success(), "{}", output_text(&output));
    for entry in journal(folder) {
        let trial = &entry["finished"]["trial"];
        if trial["verdict"] == "invalid" && entry["finished"]["point"]["load"].is_object() {
            return Err(trial["reasons"].to_string());
        }
    }
    let results: Value =
        serde_json::from_slice(&fs::read(folder.join("plan-run/results.json")).unwrap()).unwrap();
    let tables = fs::read_to_string(folder.join("plan-run/tables.md")).unwrap();
    assert!(tables.contains("HUNG") || tables.contains("DIED"), "{tables}");
    Ok(results["duts"][0]["loads"][0].clone())
}

#[test]
fn a_dut_that_hangs_or_dies_at_a_load_has_no_figures() {
    for (signal, word) in [("-STOP", "hung"), ("-KILL", "died")] {
        let Some(load) = testbed::valid_trial(|| loaded(signal)) else { return };
        assert!(load["ended"][0].to_string().contains(word), "{load:#}");
        for figure in ["cpu", "cprdp", "rtt_us"] {
            assert!(load[figure].is_null(), "{figure}: {load:#}");
        }
        assert_eq!(
            (&load["passed"], &load["trials"]),
            (&Value::Bool(false), &Value::from(1)),
            "{load:#}"
        );
    }
}
