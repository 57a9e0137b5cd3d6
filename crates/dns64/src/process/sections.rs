//! Examples, signals and exit statuses below `--help` and in the manual pages of dns64d.

use super::pages::Section;

const EXAMPLES: &str = "Examples";
const EXIT_STATUS: &str = "Exit status";

/// Sections of the program's page.
const OF_PROGRAM: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            ("dns64d", "Serve [::1]:5380 with the upstreams of /etc/resolv.conf, to try it."),
            ("dns64d --config /etc/dns64d/dns64d.toml", "Serve what a file says."),
            (
                "dns64d --config /etc/dns64d/dns64d.toml check",
                "See whether it can be used, and what it means.",
            ),
        ],
    },
    Section {
        title: "Signals",
        items: &[
            (
                "HUP",
                "reads the configuration again, as `dns64d reload` does; a bad one changes nothing",
            ),
            ("TERM", "ends it; queries in flight are still answered"),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "ended by SIGTERM or SIGINT"),
            (
                "1",
                "import: answers can depend on something that is not carried over; reload: part of the configuration waits for a restart",
            ),
            ("2", "the configuration or the command cannot be used"),
            (
                "4",
                "the system refuses something that is needed, such as a port; status, explain, reload, flush: no dns64d answers; check --probe: an upstream does not answer",
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
                "Print what is in effect, or file, line and reason.",
            ),
            ("dns64d --config dns64d.toml check --probe", "Query each upstream, too."),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            (
                "0",
                "the configuration can be used; there may be warnings, such as a port in use or an upstream without a route",
            ),
            (
                "2",
                "it cannot be used, names a user, a group or a CPU that this machine does not have, or needs more memory than the process may have",
            ),
            (
                "4",
                "--probe: an upstream did not answer within 2 s, or answered with an error such as REFUSED",
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
                "Read the notes, then dns64d --config dns64d.toml check.",
            ),
            ("dns64d import --from powerdns my.conf", "If the name does not tell whose it is."),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "nothing is lost that an answer depends on"),
            ("1", "something is: the notes name it"),
            ("2", "the file cannot be read, or its server is unknown"),
        ],
    },
];

const OF_STATUS: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            ("dns64d --config /etc/dns64d/dns64d.toml status", "What is in use."),
            ("dns64d status --socket /run/dns64d/control.sock --json", "For programs."),
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
                "Apply the file; the output names the keys that have changed.",
            ),
            (
                "dns64d reload --socket /run/dns64d/control.sock",
                "The same, if [control] socket itself has changed in the file.",
            ),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "all of the configuration is in effect"),
            ("1", "part of it waits for a restart; the output names the keys"),
            (
                "2",
                "the configuration is refused, and the old one stays; the error has file and line",
            ),
            ("4", "no dns64d answers at the socket, or this user may not connect"),
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
            ("0", "done; the output has the number of removed answers"),
            ("2", "the name is no domain name, or the configuration cannot be read"),
            ("4", "no dns64d answers at the socket, or this user may not connect"),
        ],
    },
];

const OF_EXPLAIN: &[Section] = &[
    Section {
        title: EXAMPLES,
        items: &[
            (
                "dns64d --config /etc/dns64d/dns64d.toml explain www.example.org",
                "Why a AAAA query of this machine is answered as it is.",
            ),
            (
                "dns64d explain www.example.org --type A --client 2001:db8:6::1",
                "An A query of a client; at /run/dns64d/control.sock.",
            ),
        ],
    },
    HOW_ASKING_ENDS,
];

/// Exit statuses of `status` and `explain`.
const HOW_ASKING_ENDS: Section = Section {
    title: EXIT_STATUS,
    items: &[
        ("0", "it has answered"),
        ("2", "the configuration cannot be read, or the query is malformed"),
        ("4", "no dns64d answers at the socket, or this user may not connect"),
    ],
};

/// Returns the sections of a subcommand; an empty name stands for the program.
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
            "For bash; packages bring it along.",
        )]),
        "manual" => examples(&[(
            "dns64d manual ~/.local/share/man/man1",
            "For `man dns64d`; packages bring it along.",
        )]),
        _ => Vec::new(),
    }
}
