//! Turns the grammar of the command line into manual pages and into completions for shells.

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "sanderling";

/// Write what a package brings along beside the program: its manual pages, its completions.
#[derive(Debug, Args, PartialEq, Eq)]
#[command(after_help = "Examples:
  sanderling generate man --into /usr/local/share/man/man1
  sanderling generate completions bash > ~/.local/share/bash-completion/completions/sanderling

Exit status: 0 if all is written, 1 if something can't be, 2 for a wrong command line.")]
pub(crate) struct GenerateLine {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, PartialEq, Eq, Subcommand)]
enum Paper {
    /// Write a page for the program, `sanderling.1`, and one for each of its commands
    Man {
        /// The folder for them, which must be there
        #[arg(long, value_name = "FOLDER")]
        into: PathBuf,
    },
    /// Write what lets a shell complete the words of a command line
    Completions {
        /// The shell
        shell: Shell,

        /// A folder for it, under the name that the shell looks for, instead of standard output
        #[arg(long, value_name = "FOLDER")]
        into: Option<PathBuf>,
    },
}

impl GenerateLine {
    /// Writes it, as `grammar` wants it.
    ///
    /// # Errors
    ///
    /// Those of opening and writing files, with the path.
    pub(crate) fn run(&self, grammar: Command) -> io::Result<()> {
        match &self.paper {
            Paper::Man { into } => write_manual(grammar, into),
            Paper::Completions { shell, into: None } => io::stdout().lock().write_all(&completion(*shell, &grammar)),
            Paper::Completions { shell, into: Some(folder) } => {
                write_file(&folder.join(completion_file_name(*shell)), &completion(*shell, &grammar))
            }
        }
    }
}

fn completion(shell: Shell, grammar: &Command) -> Vec<u8> {
    // The generators would offer the hidden commands too.
    let visible = grammar.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let arguments = grammar.get_arguments().cloned();
    let version = env!("CARGO_PKG_VERSION");
    let mut grammar = Command::new(PROGRAM).version(version).args(arguments).subcommands(visible);
    // They also take any failure to write for a fault of the program, so they write into memory.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut grammar, PROGRAM, &mut text);
    text
}

/// Where each shell looks, below the folders of its completions.
fn completion_file_name(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => "sanderling",
        Shell::Zsh => "_sanderling",
        Shell::Fish => "sanderling.fish",
        Shell::Elvish => "sanderling.elv",
        Shell::PowerShell => "_sanderling.ps1",
        _ => "sanderling.completion",
    }
}

fn write_manual(grammar: Command, folder: &Path) -> io::Result<()> {
    // The pages of `help` would say what the others say.
    let grammar = grammar.disable_help_subcommand(true);
    let mut grammar = grammar.subcommand_help_heading("COMMANDS").subcommand_value_name("COMMAND");
    grammar.build();
    let commands: Vec<Command> = grammar.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    for command in commands.into_iter().chain([grammar]) {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        write_file(&folder.join(format!("{name}.1")), &page(&name, command)?)?;
    }
    Ok(())
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let written = File::create(path).and_then(|mut file| file.write_all(content));
    written.map_err(|error| io::Error::new(error.kind(), format!("`{}` can't be written: {error}", path.display())))
}

/// The manual page of `command`, in the language of troff.
fn page(name: &str, command: Command) -> io::Result<Vec<u8>> {
    // What the short help leaves out has no place but the long one, and so needs the long form of its text.
    let command = command.mut_args(|argument| match argument.get_help().cloned() {
        Some(help) if argument.get_long_help().is_none() => argument.long_help(help),
        _ => argument,
    });
    let closing = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let has_commands = command.get_subcommands().any(|command| !command.is_hide_set());
    let man = Man::new(command);
    let mut text = Vec::new();
    // Without a date, so that a version of the program has one page wherever it is built.
    writeln!(text, ".TH {name} 1 \"\" \"{PROGRAM} {}\" \"User commands\"", env!("CARGO_PKG_VERSION"))?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_options_section(&mut text)?;
    if let Some(closing) = closing {
        closing_sections(&closing).to_writer(&mut text)?;
    }
    Ok(text)
}

/// Words that begin a section of their own, where a paragraph of the help opens with one of them and a colon.
const SECTIONS: [&str; 4] = ["Examples", "Exit status", "Environment", "See also"];

/// What stands behind the arguments in the help: paragraphs of text, and indented rows, which are kept as they are.
fn closing_sections(text: &str) -> Roff {
    let mut roff = Roff::default();
    for paragraph in text.split("\n\n") {
        let section = SECTIONS.iter().find_map(|name| Some((name, paragraph.strip_prefix(name)?.strip_prefix(':')?)));
        let rows = match section {
            Some((name, rest)) => {
                roff.control("SH", [name.to_uppercase().as_str()]);
                rest.strip_prefix('\n').unwrap_or(rest.trim_start())
            }
            None => {
                roff.control("PP", []);
                paragraph
            }
        };
        let mut is_kept = false;
        for row in rows.lines() {
            let is_indented = row.starts_with("  ");
            if is_indented != is_kept {
                roff.control(if is_indented { "nf" } else { "fi" }, []);
                is_kept = is_indented;
            }
            roff.text([roman(row.strip_prefix("  ").unwrap_or(row))]);
        }
        if is_kept {
            roff.control("fi", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::grammar;
    use std::process::Command as Program;

    const COMMANDS: [&str; 8] = ["demo", "serve", "check", "probe", "status", "reload", "upgrade", "stop"];

    fn manual() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("created");
        let line = GenerateLine { paper: Paper::Man { into: folder.path().to_owned() } };
        line.run(grammar()).expect("written");
        folder
    }

    /// What `program` says of `file`, on both outputs.
    #[track_caller]
    fn say_of(program: &str, package: &str, arguments: &[&str], file: &Path) -> String {
        let output = Program::new(program).args(arguments).arg(file).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}; the Debian package {package} has it"));
        assert!(output.status.success(), "{program} {}: {output:?}", file.display());
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    }

    #[test]
    fn every_command_that_people_use_has_a_page_and_no_other_has() {
        let folder = manual();
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .expect("read")
            .map(|entry| entry.expect("read").file_name().into_string().expect("text"))
            .collect();
        let mut expected: Vec<_> = COMMANDS.iter().map(|command| format!("sanderling-{command}.1")).collect();
        expected.push("sanderling.1".to_owned());
        names.sort();
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn troff_finds_no_fault_with_the_pages() {
        for entry in std::fs::read_dir(manual().path()).expect("read") {
            let path = entry.expect("read").path();
            assert_eq!(say_of("groff", "groff-base", &["-man", "-ww", "-z", "-K", "utf8"], &path), "", "{path:?}");
        }
    }

    #[test]
    fn a_page_says_what_the_help_says() {
        let folder = manual();
        let rendered = |name: &str| {
            let arguments = ["-man", "-T", "ascii", "-P", "-cbou", "-r", "LL=100n"];
            say_of("groff", "groff-base", &arguments, &folder.path().join(name))
        };
        let page = rendered("sanderling.1");
        for expected in [
            "SYNOPSIS\n       sanderling ",
            "<command>",
            "\nCOMMANDS\n       sanderling-demo(1)\n",
            "\n       --force <FEATURE=VARIANT>\n              Use this VARIANT",
            "\nEXAMPLES\n       sanderling demo                       see it work",
            "\nEXIT STATUS\n       0   done\n",
            "\nENVIRONMENT\n       SANDERLING_CONFIG  the configuration file",
        ] {
            assert!(page.contains(expected), "{expected:?} is not in\n{page}");
        }
        assert!(!page.contains("generate"), "{page}");
        let page = rendered("sanderling-serve.1");
        for expected in [
            "NAME\n       sanderling-serve - Serve a folder",
            "\nEXAMPLES\n       sanderling serve public\n           the folder",
            "\nEXIT STATUS\n       0",
        ] {
            assert!(page.contains(expected), "{expected:?} is not in\n{page}");
        }
        let page = rendered("sanderling-check.1");
        assert!(page.contains("\n       [limits]\n"), "{page}");
    }

    #[test]
    fn completions_have_the_commands_that_people_use_and_no_others() {
        let folder = tempfile::tempdir().expect("created");
        for (shell, name) in
            [(Shell::Bash, "sanderling"), (Shell::Zsh, "_sanderling"), (Shell::Fish, "sanderling.fish")]
        {
            let line = GenerateLine { paper: Paper::Completions { shell, into: Some(folder.path().to_owned()) } };
            line.run(grammar()).expect("written");
            let text = std::fs::read_to_string(folder.path().join(name)).expect("written");
            for command in COMMANDS {
                assert!(text.contains(command), "{shell}: {command} is not in\n{text}");
            }
            assert!(!text.contains("generate"), "{shell}: {text}");
        }
    }

    #[test]
    fn bash_completes_a_command_and_its_arguments() {
        let folder = tempfile::tempdir().expect("created");
        let line =
            GenerateLine { paper: Paper::Completions { shell: Shell::Bash, into: Some(folder.path().to_owned()) } };
        line.run(grammar()).expect("written");
        let script = r#"source "$0"
            COMP_WORDS=(sanderling st); COMP_CWORD=1; _sanderling sanderling st sanderling; echo ${COMPREPLY[@]}
            COMP_WORDS=(sanderling status --j); COMP_CWORD=2; _sanderling sanderling --j status; echo ${COMPREPLY[@]}"#;
        let said = say_of("bash", "bash", &["-c", script], &folder.path().join("sanderling"));
        assert_eq!(said, "status stop\n--json\n");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        for paper in [
            Paper::Man { into: "/nonexistent".into() },
            Paper::Completions { shell: Shell::Bash, into: Some("/nonexistent".into()) },
        ] {
            let error = GenerateLine { paper }.run(grammar()).expect_err("not there").to_string();
            assert!(error.starts_with("`/nonexistent/sanderling"), "{error}");
        }
    }
}
