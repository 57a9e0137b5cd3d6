//! What stands below `--help` and in the manual pages of dns64d beside its options.

use super::pages::Section;

const EXAMPLES: &str = "Examples";
const EXIT_STATUS: &str = "Exit status";

/// The program's own page.
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
            ("HUP", "reads the configuration again; a bad one changes nothing"),
            ("TERM", "ends it; queries in flight are still answered"),
        ],
    },
    Section {
        title: EXIT_STATUS,
        items: &[
            ("0", "ended by SIGTERM or SIGINT"),
            ("1", "import: answers can depend on something that is not carried over"),
            ("2", "the configuration cannot be used"),
            (
                "4",
                "the system refuses something that is needed, such as a port; status, explain, reload, flush: no dns64d answers",
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
                "it cannot be used, or names a user, a group or a CPU that this machine does not have",
            ),
            (
                "4",
                "--probe: an upstream did not answer within 2 s, or answered with an error such as REFUSED",
            ),
            ("101", "too many defects of its own"),
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
            ("2", "the file cannot be read"),
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

/// How commands end that ask a running server.
const HOW_ASKING_ENDS: Section = Section {
    title: EXIT_STATUS,
    items: &[
        ("0", "it has answered"),
        ("2", "the configuration cannot be read, or the question makes no sense"),
        ("4", "nobody answers at the socket, or this user may not ask"),
    ],
};

/// What `--help` and the manual pages have beside the options; the program's own page has no words.
pub(super) fn sections(subcommand: &str) -> Vec<Section> {
    let examples = |items| vec![Section { title: EXAMPLES, items }];
    match subcommand {
        "" => OF_PROGRAM.to_vec(),
        "check" => OF_CHECK.to_vec(),
        "status" => OF_STATUS.to_vec(),
        "explain" => OF_EXPLAIN.to_vec(),
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
