//! One manual page, in the language of roff(7). What can be copied from it, such as examples and a configuration, is
//! neither filled nor hyphenated.

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use std::io::{self, Write};

/// The foot of a page.
const SOURCE: &str = concat!("sanderling ", env!("CARGO_PKG_VERSION"));
/// The headings in the text after the options.
const HEADINGS: [&str; 7] =
    ["Configuration file", "Environment", "Examples", "Exit status", "Keys", "Limits", "See also"];

/// The file name and the content of the page of `command`, which is built.
pub(super) fn manual_page(command: &Command) -> io::Result<(String, Vec<u8>)> {
    let (man, mut page) = (Man::new(command.clone()).source(SOURCE), Vec::new());
    man.render_title(&mut page)?;
    page.write_all(b".nh\n.ad l\n")?;
    man.render_name_section(&mut page)?;
    match command.get_overridden_usage() {
        Some(_) => man.render_synopsis_section(&mut page)?,
        None => page.write_all(synopsis(command).as_bytes())?,
    }
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        page.write_all(sections(&text.to_string()).as_bytes())?;
    }
    Ok((man.get_filename(), page))
}

/// The command with its arguments and their values.
fn synopsis(command: &Command) -> String {
    let is_shown = |arg: &&Arg| {
        let is_help = matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong);
        !(arg.is_hide_set() || arg.is_hide_short_help_set() || is_help)
    };
    let shown = |arg: &Arg| {
        let text = arg.to_string().replace(['<', '>'], "");
        let text = if arg.is_positional() || arg.is_required_set() { text } else { format!("[{text}]") };
        let is_repeated = !arg.is_positional() && matches!(arg.get_action(), ArgAction::Append);
        // A value stays on the line of its option.
        escaped(&text).replace(' ', "\\ ") + if is_repeated { "...\\&" } else { "" }
    };
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(is_shown).partition(|arg| arg.is_positional());
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut text = format!(".SH SYNOPSIS\n\\fB{}\\fR\n", escaped(name));
    for arg in options.into_iter().chain(positional) {
        text += &format!("{}\n", shown(arg));
    }
    text + if command.has_subcommands() { "COMMAND\n" } else { "" }
}

/// The sections of the text after the options. Indented lines stay as they are.
fn sections(text: &str) -> String {
    let (mut out, mut is_literal, mut blank_count) = (String::new(), false, 0);
    for line in text.lines() {
        if line.is_empty() {
            blank_count += 1;
            continue;
        }
        let is_indented = line.starts_with(' ');
        if is_literal && !is_indented {
            out += ".fi\n.RE\n";
        }
        let heading = line.split_once(':').filter(|(heading, _)| HEADINGS.contains(heading));
        out += match (heading, is_indented, is_literal) {
            (Some(_), _, _) => "",
            (None, true, true) => {
                if blank_count > 0 {
                    "\n"
                } else {
                    ""
                }
            }
            (None, true, false) => ".PP\n.RS 4\n.nf\n",
            (None, false, _) => {
                if blank_count > 0 {
                    ".PP\n"
                } else {
                    ""
                }
            }
        };
        let rest = heading.map_or(line, |(heading, rest)| {
            out += &format!(".SH {}\n", heading.to_uppercase());
            rest.trim_start()
        });
        if !rest.is_empty() {
            out += &format!("{}\n", escaped(rest.strip_prefix("  ").unwrap_or(rest)));
        }
        (is_literal, blank_count) = (is_indented, 0);
    }
    out + if is_literal { ".fi\n.RE\n" } else { "" }
}

/// Text that roff prints as it is: it has typographic variants of some characters of ASCII.
fn escaped(text: &str) -> String {
    let mut out = String::from(if text.starts_with(['.', '\'']) { "\\&" } else { "" });
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            other => out.push(other),
        }
    }
    out
}
