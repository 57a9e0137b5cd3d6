//! The parts of `--help` and of the manual pages that are not descriptions of options: headings, examples, exit
//! statuses.

use cli::{Section, below_help};

// Headings of option groups, with the same meaning in every subcommand.
pub(super) const SERVER: &str = "Server";
pub(super) const LOAD: &str = "Rate and duration";
pub(super) const NAMES: &str = "Names and shares";
pub(super) const QUESTIONS: &str = "Queries";
pub(super) const REPLIES: &str = "Replies";
pub(super) const CHECKS: &str = "Checks";
pub(super) const SEARCH: &str = "Search";
pub(super) const SELF_TEST: &str = "Self-test";
pub(super) const THREADS: &str = "Threads and sockets";
pub(super) const SHARDS: &str = "Distributed trials";
pub(super) const PACING: &str = "Pacing";
pub(super) const AUTH: &str = "AuthDNS";
pub(super) const FAULTS: &str = "Delay and faults";
pub(super) const FILES: &str = "Input and output";
pub(super) const COMPARISON: &str = "Comparison";
pub(super) const PERF2: &str = "dns64perf2";

/// Returns the text below the options of a subcommand, such as `campaign run`.
pub(super) fn below(subcommand: &str) -> String {
    below_help(&sections(subcommand))
}

/// Returns the sections of a manual page that are not generated from options. `subcommand` is empty for the program
/// itself.
pub(crate) fn sections(subcommand: &str) -> Vec<Section> {
    let (notes, examples) = (notes(subcommand), examples(subcommand));
    let notes = (!notes.is_empty()).then_some(Section { title: "Notes", items: notes });
    let examples = (!examples.is_empty()).then_some(Section { title: "Examples", items: examples });
    let of_program = if subcommand.is_empty() { &[EXIT_STATUS, ENVIRONMENT][..] } else { &[] };
    notes.into_iter().chain(examples).chain(of_program.iter().copied()).collect()
}

const EXIT_STATUS: Section = Section {
    title: "Exit status",
    items: &[
        ("0", "passed or done"),
        ("1", "the DUT failed, or `report` found it slower than the baseline"),
        ("2", "bad usage"),
        (
            "3",
            "the tester invalidated the trial, results of a campaign are missing, or a comparison is undecided",
        ),
        ("4", "the measurement is impossible on this system, or the server does not respond"),
        ("130", "interrupted; the results so far were printed"),
        ("141", "standard output was closed"),
    ],
};

const ENVIRONMENT: Section = Section {
    title: "Environment",
    items: &[
        ("NO_COLOR", "if set and not empty, output has no colours"),
        ("TERM", "if dumb, output has no colours, and progress is shown in separate lines"),
        ("DNS64BENCH_LOG", "log level: error, warn (the default), info, debug or trace"),
    ],
};

fn notes(subcommand: &str) -> &'static [(&'static str, &'static str)] {
    match subcommand {
        "resperf" => &[
            (
                "",
                "Exit status: 0 done, 2 bad usage, 4 the server cannot be reached or a file cannot be written, 130 interrupted.",
            ),
            (
                "",
                "A link to dns64bench named resperf accepts these arguments without the subcommand. A \
                 link named resperf-report also implies --report.",
            ),
            (
                "",
                "Differences from the original resperf: a reply is counted only if it repeats the \
                 question. The last interval is plotted with its true width. The last interval counts \
                 towards the maximum throughput if it is at least half as wide as the others. The \
                 figures written by --report are SVG instead of PNG. Some options differ too:",
            ),
            ("-b", "Without this option, socket buffers are as large as the system allows."),
            (
                "-C",
                "Each client has its own message IDs, and -q limits the queries in flight of all clients together.",
            ),
            (
                "-d",
                "Lines that have words after the class, an unknown type, or octets above 127 are skipped with a warning.",
            ),
            (
                "-F",
                "After a stall of this machine, the overdue queries are sent first. Only queries that are overdue after that count.",
            ),
            ("-i", "The duration of the test need not be a multiple of the interval."),
        ],
        "dns64perf++" => &[
            (
                "",
                "Queries are evenly spaced instead of sent in bursts. The rate is the same: n·t/d \
                queries per ns for BURST n, THREADS t and DELAY d.",
            ),
            (
                "",
                "Versions of dns64perf++ since October 2018 have the argument PORTS. Without it, 64 \
                 source ports are used in total. If the given ports do not provide enough message IDs \
                 for the rate and the timeout, more ports are used.",
            ),
            (
                "",
                "Exit status: 0 done, 2 bad usage, 3 the tester invalidated the trial (reason on \
                 standard error), 4 this environment cannot be used, 130 interrupted.",
            ),
            (
                "",
                "A link to dns64bench named dns64perf++ accepts these arguments without the subcommand.",
            ),
        ],
        _ => &[],
    }
}

/// Returns example command lines, and the purpose of each.
fn examples(subcommand: &str) -> &'static [(&'static str, &'static str)] {
    match subcommand {
        "" => &[
            (
                "dns64bench quickstart",
                "Measure dns64d, the DNS64 server included in this program, on this host, without root.",
            ),
            ("dns64bench try --server 127.0.0.1", "Measure your own server in minutes."),
            ("dns64bench check", "List settings of this machine that distort measurements."),
            (
                "dns64bench search --server 2001:2::1 --min 1k --max 64k",
                "Measure a server as specified by RFC 8219.",
            ),
        ],
        "quickstart" => &[(
            "dns64bench quickstart",
            "Run a self-test, then a closed loop and searches with dns64d, all on loopback.",
        )],
        "try" => &[
            (
                "dns64bench try --server 127.0.0.1",
                "Print configuration lines for the server on this host, wait until it is configured, and measure it.",
            ),
            (
                "dns64bench try --server 2001:2::1 --expect-prefix 2001:db8:64::/96 --json",
                "Measure a server on another host with a different prefix; print the result as \
                 JSON.",
            ),
            (
                "dns64bench try --server 127.0.0.1 --wait 0s --quiet",
                "For scripts: check once, and end with status 4 if the server is not configured yet.",
            ),
        ],
        "merge" => &[
            (
                "dns64bench merge shard-0.json shard-1.json shard-2.json",
                "Combine the results of three testers into one verdict.",
            ),
            (
                "dns64bench merge --offset 1=250us --offset 2=-1ms --json shard-*.json",
                "Use the measured clock offsets of the testers that sent shards 1 and 2.",
            ),
        ],
        "measure" => &[
            (
                "dns64bench measure --server 2001:2::1 --rate 20k",
                "Run a trial of 60 s with 20 000 queries per second.",
            ),
            (
                "dns64bench measure --server localhost --rate 500 --duration 10s --json",
                "Run a short trial; print JSON.",
            ),
            (
                "dns64bench measure --server 2001:2::1 --rate 20k --records trial.parquet",
                "Record every query.",
            ),
            (
                "dns64bench measure --server 2001:2::1 --rate 2M --shard 0/3 --start-at 2026-11-25T12:00:00Z --json",
                "Run the first of three testers that share a trial; `dns64bench merge` combines their results.",
            ),
            (
                "dns64bench measure --server 2001:2::1 --rate 20k --source-addresses 2001:2:0:ff::/64",
                "Simulate 256 clients, after `ip -6 route add local 2001:2:0:ff::/64 dev lo`.",
            ),
        ],
        "search" => &[
            (
                "dns64bench search --server 2001:2::1 --min 1k --max 64k",
                "Run 20 searches, as required by RFC 8219.",
            ),
            (
                "dns64bench search --server 2001:2::1 --min 1k --max 64k --resolution 500 --repeat 1 --duration 5s",
                "Run a short search, which is not RFC 8219 compliant.",
            ),
            (
                "dns64bench search --server 2001:2::1 --min 1k --max 64k --self-test self-test.json",
                "Use the result of a self-test, which shows the rate up to which the tester itself is reliable.",
            ),
            (
                "dns64bench search --server 2001:2::1 --min 1k --max 64k --method mlrsearch --goal 0.5%,exceed=50%,final=1s,sum=21s --pause 1s",
                "Shorten the search with MLRsearch and short pauses. Add a goal: the loss may exceed 0.5 % in half of the trial time.",
            ),
            ("dns64bench search --resume journal.jsonl", "Continue an interrupted search."),
        ],
        "self-test" => &[
            (
                "dns64bench self-test --server 198.18.1.2 --for-rate 64k --json > self-test.json",
                "Test the tester against AuthDNS, which must run at that address with --aaaa-share 1.",
            ),
            (
                "dns64bench self-test --server 198.18.1.2 --for-rate 64k --search-to 500k",
                "Find the rate up to which the tester is reliable.",
            ),
            (
                "dns64bench self-test --server 198.18.1.2 --for-rate 64k --source-addresses 198.19.0.0/24",
                "Validate the tester for trials with 256 source addresses.",
            ),
        ],
        "closed-loop" => &[
            (
                "dns64bench closed-loop --server 2001:2::1 --outstanding 200 --duration 30s",
                "Measure with 200 queries in flight for 30 s, like dnsperf.",
            ),
            (
                "dns64bench closed-loop --server 2001:2::1 --queries queries.txt --transport tcp",
                "Send the queries of a file over TCP.",
            ),
            (
                "dns64bench closed-loop --dns64perf2 0 10 4 1 2001:2::1",
                "Run the experiments of dns64perf2.",
            ),
        ],
        "resperf" => &[
            (
                "dns64bench resperf -s 2001:2::1 -d queries.txt -m 50000",
                "Ramp the rate up to 50 000 queries per second.",
            ),
            (
                "dns64bench resperf -s 2001:2::1 --names 10.0.0.0/8 --report",
                "Query generated names, and write a report in HTML.",
            ),
        ],
        "dns64perf++" => &[
            (
                "dns64bench dns64perf++ 2001:2::1 53 10.0.0.0/8 60000 1 1 1000000 1",
                "Send 60 000 queries, one per millisecond, with a timeout of 1 s.",
            ),
            (
                "dns64bench dns64perf++ 2001:2::1 53 10.0.0.0/8 60000 1 1 100 1000000 1",
                "The same with 100 source ports.",
            ),
        ],
        "campaign" => &[
            (
                "dns64bench campaign plan smoke",
                "Show what a built-in plan measures and how long it takes.",
            ),
            (
                "dns64bench campaign run smoke",
                "Run this plan; the report is in the folder smoke-run.",
            ),
            ("dns64bench campaign show compulsory > my.toml", "Create a plan from a template."),
        ],
        "campaign run" => &[
            (
                "dns64bench campaign run smoke",
                "Run a built-in plan, with its results in the folder smoke-run.",
            ),
            ("dns64bench campaign run my.toml --dir results/tuesday", "Run your own plan."),
        ],
        "campaign resume" => &[
            ("dns64bench campaign resume smoke-run", "Continue after an interruption."),
            (
                "dns64bench campaign resume smoke-run --redo self-test",
                "Repeat a self-test that failed.",
            ),
        ],
        "campaign status" => &[(
            "dns64bench campaign status smoke-run",
            "Show the finished points and the remaining time.",
        )],
        "campaign plan" => &[("dns64bench campaign plan my.toml", "Show what the plan measures.")],
        "campaign show" => {
            &[("dns64bench campaign show compulsory > my.toml", "Create a plan from a template.")]
        }
        "report" => &[
            ("dns64bench report smoke-run", "Write the report of a campaign again."),
            (
                "dns64bench report before-run after-run --output comparison",
                "Compare two campaigns.",
            ),
            (
                "dns64bench report --baseline before-run after-run --max-regression 5% --junit junit.xml",
                "Exit with status 1 if after-run is more than 5 % slower than before-run.",
            ),
        ],
        "conform" => &[
            (
                "dns64bench conform --server 2001:2::1",
                "Run only the checks that need no test names.",
            ),
            (
                "dns64bench conform --server 2001:2::1 --zone conform.example --auth-status far.socket --forwards-all",
                "Run all checks; the server forwards everything to `auth --conform --status \
                 far.socket`.",
            ),
            (
                "dns64bench conform --server ::1 --name ours --html board.html --beside other.json",
                "Write a scoreboard of this server and the server in other.json.",
            ),
        ],
        "auth" => &[
            (
                "dns64bench auth --conform --listen 198.18.0.2 --status far.socket --anchors anchors.txt",
                "Serve the test names of `dns64bench conform`.",
            ),
            (
                "dns64bench auth --listen 198.18.0.2 --status auth.socket",
                "Serve until Ctrl-C, with live counters.",
            ),
            (
                "dns64bench auth --listen 127.0.0.1:5300 --aaaa-share 0.2 --delay 5ms-20ms",
                "Serve on loopback; 20 % of names have an AAAA record, and replies are delayed.",
            ),
            (
                "dns64bench auth --listen 198.18.0.2 --xdp eth1",
                "Use AF_XDP (kernel bypass), as root.",
            ),
        ],
        "reference-dut" => &[
            (
                "dns64bench reference-dut --listen 127.0.0.1:5310 --capacity 20k",
                "Run a server that answers 20 000 queries per second.",
            ),
            (
                "dns64bench reference-dut --listen 127.0.0.1:5310 --capacity 20k --loss 0.01",
                "Run the same server, but do not answer 1 % of queries.",
            ),
        ],
        "queryfile" => &[(
            "dns64bench queryfile --names 10.0.0.0/24 --output queries.txt",
            "Write 256 queries for closed-loop, resperf and dnsperf.",
        )],
        "schema" => &[(
            "dns64bench schema results > results.schema.json",
            "Write the schema of a campaign's results.",
        )],
        "zone" => &[(
            "dns64bench zone --names 10.0.0.0/16 --output dns64perf.zone",
            "Write a zone file of 65 536 names.",
        )],
        "lab" => &[
            ("dns64bench lab up", "Create three network namespaces on this machine."),
            (
                "dns64bench lab exec dut -- dns64d --config dns64d.toml",
                "Start a server in the namespace dut.",
            ),
            ("dns64bench lab down", "Remove the namespaces."),
        ],
        "lab up" => &[("dns64bench lab up", "Create three network namespaces on this machine.")],
        "lab down" => &[("dns64bench lab down", "Remove the namespaces.")],
        "lab exec" => {
            &[("dns64bench lab exec tester -- ip address", "Show the addresses of the tester.")]
        }
        "check" => &[
            (
                "dns64bench check",
                "List settings that distort measurements, with the commands that \
                fix them.",
            ),
            ("dns64bench check --json", "Print the same as JSON."),
            (
                "dns64bench check --strict",
                "End with status 4 if any setting may distort \
                measurements.",
            ),
            ("dns64bench check --xdp eth1", "Also check whether AF_XDP works on eth1."),
            (
                "dns64bench check --xdp eth1 --loop-to eth2",
                "Also measure for ten seconds how many packets AF_XDP sends from eth1 to eth2, which are connected by a cable.",
            ),
        ],
        "completions" => &[(
            "dns64bench completions bash > ~/.local/share/bash-completion/completions/dns64bench",
            "Install completions for bash, which are also part of the packages.",
        )],
        "manual" => &[(
            "dns64bench manual ~/.local/share/man/man1",
            "Install pages for `man dns64bench`, which are also part of the packages.",
        )],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::*;
    use crate::args::Arguments;

    /// Returns every command that `--help` shows, with its subcommand words.
    fn commands() -> Vec<(String, Command)> {
        fn collect(command: &Command, words: &str, all: &mut Vec<(String, Command)>) {
            all.push((words.to_owned(), command.clone()));
            for sub in command
                .get_subcommands()
                .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
            {
                collect(sub, format!("{words} {}", sub.get_name()).trim(), all);
            }
        }
        let mut all = Vec::new();
        let mut whole = Arguments::command();
        whole.build();
        collect(&whole, "", &mut all);
        all
    }

    #[test]
    fn every_command_has_examples_and_they_can_be_typed() {
        let all = commands();
        assert!(all.len() > 20, "{}", all.len());
        for (words, command) in all {
            let examples = examples(&words);
            assert!(!examples.is_empty(), "{words}: no example");
            let help = command.clone().render_help().to_string();
            for (line, _) in examples {
                assert!(line.starts_with(format!("dns64bench {words}").trim()), "{words}: {line}");
                let typed = line.split(" > ").next().unwrap().split_whitespace();
                if let Err(error) = Arguments::try_parse_from(typed) {
                    panic!("{line}\n{error}");
                }
                // clap may break long lines.
                let unbroken = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(
                    unbroken(&help).contains(&unbroken(line)),
                    "{words}: {line} is not in its help:\n{help}"
                );
            }
        }
    }

    /// If one option has a long help, or possible values with help texts, clap adds blank lines to all options, and the
    /// commands would differ in style.
    #[test]
    fn all_help_texts_are_of_one_style() {
        let mut daemon = dns64::process::daemon::command();
        daemon.build();
        let of_daemon = daemon.get_subcommands().cloned().collect::<Vec<_>>();
        let of_daemon =
            of_daemon.into_iter().map(|sub| (format!("dns64d {}", sub.get_name()), sub));
        for (words, command) in commands().into_iter().chain(of_daemon) {
            assert!(command.get_long_about().is_none(), "{words}: there is a second paragraph");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let values = arg.get_possible_values();
                let explained = values.iter().any(|value| value.get_help().is_some());
                assert!(!explained, "{words} --{}: possible values with help texts", arg.get_id());
                assert!(arg.get_long_help().is_none(), "{words} --{}: long help", arg.get_id());
            }
        }
    }

    #[test]
    fn every_command_has_a_version_option() {
        for (words, command) in commands() {
            let version = command.get_arguments().any(|arg| arg.get_id() == "version");
            assert!(version, "{words} has no --version");
        }
    }

    #[test]
    fn every_option_stands_under_a_heading() {
        for (words, command) in commands() {
            for arg in command.get_arguments().filter(|arg| !arg.is_positional()) {
                let of_clap = matches!(arg.get_id().as_str(), "help" | "version");
                assert!(
                    of_clap || arg.is_hide_set() || arg.get_help_heading().is_some(),
                    "{words} --{}: no help_heading",
                    arg.get_id()
                );
            }
        }
    }
}
