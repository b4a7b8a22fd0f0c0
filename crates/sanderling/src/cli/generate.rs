//! Manual pages and shell completions, for packages.

use super::manual_page::manual_page;
use clap::{Args, Command, Subcommand};
use clap_complete::{Generator, Shell};
use sanderling_config::diagnostic::error_text;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The end of the branch of a command in completions for bash: it offers the same words again after the first one.
const SAME_WORDS: &str =
    "            COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )\n            return 0\n            ;;";
/// Without words, bash completes file names.
const FILES: &str = "            return 0\n            ;;";

/// Write manual pages or shell completions
#[derive(Debug, Args, PartialEq, Eq)]
#[command(after_help = "Examples:
  sanderling generate man --into /usr/local/share/man/man1
  sanderling generate completions bash > ~/.local/share/bash-completion/completions/sanderling

Exit status: 0 if everything was written, 1 if not, 2 for a wrong command line.")]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    output: Output,
}

#[derive(Debug, PartialEq, Eq, Subcommand)]
enum Output {
    /// Write a page for the program and one for each command
    Man {
        /// The directory to write to, which must exist
        #[arg(long, value_name = "FOLDER")]
        into: PathBuf,
    },
    /// Write the completions of a shell
    Completions {
        /// The shell
        shell: Shell,

        /// A directory to write to, under the name that the shell expects, instead of standard output
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
}

impl GenerateArgs {
    /// Writes it for the command line of `definition`.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written; the message names the directory.
    pub(crate) fn run(&self, definition: Command) -> Result<(), String> {
        self.write(definition).map_err(|error| {
            let place = match &self.output {
                Output::Man { into } | Output::Completions { into: Some(into), .. } => into.to_string_lossy(),
                Output::Completions { into: None, .. } => "standard output".into(),
            };
            format!("cannot write to {place}: {}", error_text(&error))
        })
    }

    fn write(&self, definition: Command) -> io::Result<()> {
        match &self.output {
            Output::Man { into } => {
                let mut definition = definition.disable_help_subcommand(true);
                definition.build();
                write_pages(&definition, into)
            }
            Output::Completions { shell, into } => {
                let text = completions(*shell, &mut without_hidden(&definition));
                match into {
                    Some(into) => fs::write(into.join(shell.file_name("sanderling")), text),
                    None => io::stdout().lock().write_all(text.as_bytes()),
                }
            }
        }
    }
}

/// Writes the page of `command`, and of those below it.
fn write_pages(command: &Command, into: &Path) -> io::Result<()> {
    let (name, page) = manual_page(command)?;
    fs::write(into.join(name), page)?;
    let mut below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.try_for_each(|command| write_pages(command, into))
}

fn completions(shell: Shell, definition: &mut Command) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, definition, "sanderling", &mut text);
    let text = String::from_utf8(text).expect("completions are text");
    if shell != Shell::Bash {
        return text;
    }
    let branches: Vec<&str> = text.split(SAME_WORDS).collect();
    let label =
        |branch: &str| Some(branch.split_once(")\n            opts=")?.0.rsplit_once([' ', '\n'])?.1.to_owned());
    let labels: Vec<String> = branches.iter().filter_map(|branch| label(branch)).collect();
    let mut out = String::new();
    for branch in &branches {
        out.push_str(branch);
        if let Some(label) = label(branch) {
            let has_commands = labels.iter().any(|other| other.starts_with(&format!("{label}__")));
            out.push_str(if has_commands { SAME_WORDS } else { FILES });
        }
    }
    out
}

/// The generators of completions do not leave out hidden commands.
fn without_hidden(definition: &Command) -> Command {
    let visible: Vec<Command> =
        definition.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let arguments: Vec<clap::Arg> = definition.get_arguments().cloned().collect();
    Command::new("sanderling").version(env!("CARGO_PKG_VERSION")).args(arguments).subcommands(visible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::definition;
    use std::process::Command as Program;

    const COMMANDS: [&str; 23] = [
        "config",
        "doctor",
        "import",
        "init",
        "publish",
        "rollback",
        "demo",
        "dnssec",
        "serve",
        "check",
        "probe",
        "status",
        "top",
        "certificates",
        "renew",
        "revoke",
        "export",
        "backup",
        "reload",
        "upgrade",
        "reopen",
        "stop",
        "zone",
    ];

    fn run(output: Output) {
        GenerateArgs { output }.run(definition()).expect("written");
    }

    /// Both outputs of `program`, which must succeed.
    #[track_caller]
    fn output_of(program: &str, package: &str, arguments: &[&str], file: &Path) -> String {
        let output = Program::new(program).args(arguments).arg(file).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}; the Debian package {package} has it"));
        assert!(output.status.success(), "{program} {}: {output:?}", file.display());
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    }

    #[test]
    fn every_visible_command_has_a_valid_manual_page() {
        let directory = tempfile::tempdir().expect("created");
        run(Output::Man { into: directory.path().to_owned() });
        let mut names: Vec<_> = std::fs::read_dir(directory.path())
            .expect("read")
            .map(|entry| entry.expect("read").file_name().into_string().expect("text"))
            .collect();
        let mut expected: Vec<_> = COMMANDS.iter().map(|command| format!("sanderling-{command}.1")).collect();
        expected.push("sanderling.1".to_owned());
        let dnssec = ["export", "import", "new-keys", "rollover", "status"];
        expected.extend(dnssec.map(|command| format!("sanderling-dnssec-{command}.1")));
        expected.extend(
            ["add", "export", "list", "remove", "show", "status"].map(|command| format!("sanderling-zone-{command}.1")),
        );
        names.sort();
        expected.sort();
        assert_eq!(names, expected);
        for name in names {
            let page = directory.path().join(name);
            assert_eq!(output_of("groff", "groff-base", &["-man", "-ww", "-z", "-K", "utf8"], &page), "", "{page:?}");
        }
        let arguments = ["-man", "-T", "ascii", "-P", "-cbou", "-r", "LL=100n"];
        let page = output_of("groff", "groff-base", &arguments, &directory.path().join("sanderling-serve.1"));
        for expected in ["sanderling-serve - Serve a directory", "--http", "sanderling serve public\n"] {
            assert!(page.contains(expected), "{expected:?} is not in\n{page}");
        }
        let read = |name: &str| {
            let arguments = ["-man", "-T", "utf8", "-K", "utf8", "-P", "-cbou", "-r", "LL=120n"];
            output_of("groff", "groff-base", &arguments, &directory.path().join(name))
        };
        let init = read("sanderling-init.1");
        for expected in ["\nEXAMPLES\n", "\nEXIT STATUS\n"] {
            assert!(init.contains(expected), "{expected:?} is not in\n{init}");
        }
        let words = init.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("init [--dir FOLDER] [--address ADDRESS]... [--no-dnssec] [--yes] NAME"), "{words}");
        // A configuration can be copied from the page.
        let check = read("sanderling-check.1");
        let mut lines = check.lines().map(str::trim);
        for expected in sanderling_config::EXAMPLE.lines().map(str::trim) {
            assert!(lines.any(|line| line == expected), "{expected:?} is not in\n{check}");
        }
    }

    #[test]
    fn completions_have_the_visible_commands() {
        let directory = tempfile::tempdir().expect("created");
        for (shell, name) in
            [(Shell::Bash, "sanderling.bash"), (Shell::Zsh, "_sanderling"), (Shell::Fish, "sanderling.fish")]
        {
            run(Output::Completions { shell, into: Some(directory.path().to_owned()) });
            let text = std::fs::read_to_string(directory.path().join(name)).expect("written");
            for command in COMMANDS {
                assert!(text.contains(command), "{shell}: {command} is not in\n{text}");
            }
            assert!(!text.contains("generate"), "{shell}: {text}");
        }
        let script = r#"source "$0"
            COMP_WORDS=(sanderling st); COMP_CWORD=1; _sanderling sanderling st sanderling; echo ${COMPREPLY[@]}
            COMP_WORDS=(sanderling status --j); COMP_CWORD=2; _sanderling sanderling --j status; echo ${COMPREPLY[@]}
            COMP_WORDS=(sanderling zone sh); COMP_CWORD=2; _sanderling sanderling sh zone; echo ${COMPREPLY[@]}
            COMP_WORDS=(sanderling import ngi); COMP_CWORD=2; _sanderling sanderling ngi import; echo ${COMPREPLY[@]}
            COMP_WORDS=(sanderling import nginx ""); COMP_CWORD=3; _sanderling sanderling "" nginx; echo ${COMPREPLY[@]}"#;
        let output = output_of("bash", "bash", &["-c", script], &directory.path().join("sanderling.bash"));
        assert_eq!(output, "status stop\n--json\nshow\nnginx\n\n", "the last word is a file");
    }
}
