//! Examples, signals and exit statuses for the manual pages of dns64d, and for the end of its `--help` output.

use cli::Section;

const EXAMPLES: &str = "Examples";
const EXIT_STATUS: &str = "Exit status";

/// Sections of the main manual page.
const OF_PROGRAM: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            (
                "dns64d",
                "Serve [::1]:5380 with the upstreams of /etc/resolv.conf, for a first test.",
            ),
            ("dns64d --config /etc/dns64d/dns64d.toml", "Serve with this configuration."),
            (
                "dns64d --config /etc/dns64d/dns64d.toml check",
                "Check the configuration, and print the settings in effect.",
            ),
        ],
    },
    Section {
        title: "Signals",
        items: &[
            (
                "HUP",
                "reloads the configuration, as `dns64d reload` does; an invalid configuration is not applied",
            ),
            ("TERM", "stops the server; queries in flight are still answered"),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "stopped by SIGTERM or SIGINT"),
            (
                "1",
                "import: some settings that affect answers are not carried over; reload: part of the configuration needs a restart",
            ),
            ("2", "the configuration or the command is invalid"),
            (
                "4",
                "the system refuses a required resource, such as a port; status, explain, reload, flush: no dns64d answers; check --probe: an upstream does not answer",
            ),
            ("101", "too many internal errors"),
        ],
    },
];

const OF_CHECK: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            (
                "dns64d --config dns64d.toml check",
                "Print the settings in effect, or the error with file and line.",
            ),
            ("dns64d --config dns64d.toml check --probe", "Also query each upstream."),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            (
                "0",
                "the configuration is valid; there may be warnings, such as a port in use or an upstream without a route",
            ),
            (
                "2",
                "the configuration is invalid, contains a user, a group or a CPU that does not exist on this machine, or needs more memory than the process may use",
            ),
            (
                "4",
                "--probe: an upstream did not answer within 2 s, or answered with an error such as REFUSED; with dnssec.validate = true, also an upstream that returns no signatures",
            ),
        ],
    },
];

const OF_IMPORT: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            (
                "dns64d import /etc/unbound/unbound.conf > dns64d.toml",
                "Convert a configuration; then read the notes, and run dns64d --config dns64d.toml check.",
            ),
            (
                "dns64d import --from powerdns my.conf",
                "Convert a file whose type is not detected from its name or content.",
            ),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "all settings that affect answers are carried over"),
            ("1", "some settings that affect answers are not carried over; the notes list them"),
            ("2", "the file cannot be read, or its type is not detected"),
        ],
    },
];

const OF_STATUS: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            ("dns64d --config /etc/dns64d/dns64d.toml status", "Print the status as text."),
            ("dns64d status --socket /run/dns64d/control.sock --json", "Print the status as JSON."),
        ],
    },
    HOW_ASKING_ENDS,
];

const OF_RELOAD: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            (
                "dns64d --config /etc/dns64d/dns64d.toml reload",
                "Apply the changes of this file, and list the changed keys.",
            ),
            (
                "dns64d reload --socket /run/dns64d/control.sock",
                "Use the old socket, after a change of `socket` in [control] of the file.",
            ),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "the whole configuration is in effect"),
            ("1", "part of the configuration needs a restart; the output lists the keys"),
            (
                "2",
                "the configuration is rejected, and the old one stays in effect; the error has file and line",
            ),
            ("4", "no dns64d answers at the socket, or this user is not permitted to connect"),
        ],
    },
];

const OF_FLUSH: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            (
                "dns64d --config /etc/dns64d/dns64d.toml flush example.org",
                "Remove example.org and all names below it, such as www.example.org.",
            ),
            ("dns64d flush --all --socket /run/dns64d/control.sock", "Empty the cache."),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "the answers were removed; the output shows their number"),
            ("2", "the name is not a domain name, or the configuration cannot be read"),
            ("4", "no dns64d answers at the socket, or this user is not permitted to connect"),
        ],
    },
];

const OF_EXPLAIN: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            (
                "dns64d --config /etc/dns64d/dns64d.toml explain www.example.org",
                "Explain the answer to an AAAA query from this machine (::1).",
            ),
            (
                "dns64d explain www.example.org --type A --client 2001:db8:6::1",
                "Explain the answer to an A query from 2001:db8:6::1; the server's socket is /run/dns64d/control.sock.",
            ),
        ],
    },
    HOW_ASKING_ENDS,
];

/// Exit statuses of the commands `status` and `explain`.
const HOW_ASKING_ENDS: Section = Section {
    title: EXIT_STATUS,
    items: &[
        ("0", "the server has answered"),
        ("2", "the configuration cannot be read, or the query is malformed"),
        ("4", "no dns64d answers at the socket, or this user is not permitted to connect"),
    ],
};

/// Returns the manual page sections of a subcommand. An empty name stands for the program itself.
pub(super) fn sections(subcommand: &str) -> Vec<Section> {
    let examples = |items| vec![Section { title: EXAMPLES, items }];
    match subcommand {
        "" => OF_PROGRAM.to_vec(),
        "check" => OF_CHECK.to_vec(),
        "status" => OF_STATUS.to_vec(),
        "explain" => OF_EXPLAIN.to_vec(),
        "reload" => OF_RELOAD.to_vec(),
        "flush" => OF_FLUSH.to_vec(),
        "import" => OF_IMPORT.to_vec(),
        "completions" => examples(&[(
            "dns64d completions bash > ~/.local/share/bash-completion/completions/dns64d",
            "Install the script for bash, which is also part of the packages.",
        )]),
        "manual" => examples(&[(
            "dns64d manual ~/.local/share/man/man1",
            "Install pages for `man dns64d`, which are also part of the packages.",
        )]),
        _ => Vec::new(),
    }
}
