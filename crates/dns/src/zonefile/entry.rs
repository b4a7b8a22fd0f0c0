//! Turns one entry of a zone file, that is a record or a directive, into what the parser has to do about it.

use super::field_text::{self, RdataText};
use super::generate::Generate;
use super::name_text::{self, Written};
use super::number;
use super::scanner::{Form, Leading, Scanner, Shown, Token};
use super::{Diagnostic, ParserLimits, Position};
use crate::name::{Name, NameBuf};
use crate::rtype::Rtype;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The longest TTL, in seconds (RFC 2181 §8).
const TTL_S_MAX: u32 = (1 << 31) - 1;

/// What one entry was.
#[derive(Debug)]
pub(super) enum EntryKind {
    /// A directive that is done, or a record that is left out.
    Nothing,
    /// A record, its owner and RDATA in the context.
    Record { position: Position, rtype: Rtype, ttl_s: u32 },
    /// `$INCLUDE`.
    Include { position: Position, path: String, origin: Box<NameBuf> },
    /// `$GENERATE`.
    Generate(Box<Generate>),
}

/// The owner of the last record, which an entry without one shares.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// There was no record in this file.
    Unknown,
    /// A name at or below the apex, in wire form.
    Inside(Vec<u8>),
    /// A name that does not belong to the zone: its records are left out.
    Outside,
    /// No name: its records are read for their errors alone.
    Faulty,
}

/// What one entry leaves behind for the next.
#[derive(Debug)]
pub(super) struct Context {
    apex: NameBuf,
    origin: NameBuf,
    /// Whether the origin is at or below the apex, and with it every relative name.
    origin_is_inside: bool,
    owner: Owner,
    /// `$TTL` (RFC 2308 §4), or the minimum of a SOA that had no TTL itself.
    default_ttl_s: Option<u32>,
    /// The last TTL that a record gave (RFC 1035 §5.1).
    last_ttl_s: Option<u32>,
    /// About the record just read.
    warning: Option<Diagnostic>,
    rdata: Vec<u8>,
    /// Octets on their way into `rdata`.
    scratch: Vec<u8>,
}

impl Context {
    pub(super) fn new(apex: Name<'_>) -> Context {
        Context {
            apex: apex.to_owned(),
            origin: apex.to_owned(),
            origin_is_inside: true,
            owner: Owner::Unknown,
            default_ttl_s: None,
            last_ttl_s: None,
            warning: None,
            rdata: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Starts an included file; what is returned brings back the present one.
    pub(super) fn enter(&mut self, origin: NameBuf) -> (NameBuf, Owner) {
        let outer_origin = self.origin;
        self.set_origin(origin);
        let outer_owner = core::mem::replace(&mut self.owner, Owner::Unknown);
        (outer_origin, outer_owner)
    }

    /// Goes back to the file that was left by [`Context::enter`].
    pub(super) fn leave(&mut self, outer: (NameBuf, Owner)) {
        let (origin, owner) = outer;
        self.set_origin(origin);
        self.owner = owner;
    }

    fn set_origin(&mut self, origin: NameBuf) {
        self.origin_is_inside = origin.as_name().is_at_or_below(self.apex.as_name());
        self.origin = origin;
    }

    /// What is to be said about the record just read.
    pub(super) fn take_warning(&mut self) -> Option<Diagnostic> {
        self.warning.take()
    }

    /// Owner and RDATA of the record just read.
    pub(super) fn owner_and_rdata(&self) -> (Name<'_>, &[u8]) {
        let Owner::Inside(owner) = &self.owner else {
            unreachable!("a record is told of only when its owner is inside the zone")
        };
        (Name::parse(owner).expect("an owner was made by put_name"), &self.rdata)
    }

    /// Takes the name that `token` spells as owner; a name outside the zone is a warning.
    fn set_owner(&mut self, scanner: &Scanner, token: Token) -> Result<(), Diagnostic> {
        let mut bytes = match core::mem::replace(&mut self.owner, Owner::Faulty) {
            Owner::Inside(bytes) => bytes,
            Owner::Unknown | Owner::Outside | Owner::Faulty => Vec::new(),
        };
        bytes.clear();
        let written = name_text::put_name(scanner.text_of(token), token.form, self.origin.as_name(), &mut bytes)
            .map_err(|error| error.about("owner", scanner, token))?;
        let owner = Name::parse(&bytes).expect("an owner was made by put_name");
        let below_origin = written == Written::Relative && self.origin_is_inside;
        if below_origin || owner.is_at_or_below(self.apex.as_name()) {
            self.owner = Owner::Inside(bytes);
            return Ok(());
        }
        let problem = format!("{owner} is outside the zone {}: its records are left out", self.apex);
        self.owner = Owner::Outside;
        Err(Diagnostic::warning(
            scanner.position_of(token),
            problem,
            "take them away, or mend the name or the $ORIGIN before it",
        ))
    }

    /// The TTL of a record of `rtype`: as BIND finds it, in this order.
    fn ttl_s(&mut self, explicit_ttl_s: Option<u32>, rtype: Rtype, position: Position) -> Result<u32, Diagnostic> {
        if let Some(ttl_s) = explicit_ttl_s {
            self.last_ttl_s = Some(ttl_s);
            return Ok(ttl_s);
        }
        if let Some(ttl_s) = self.default_ttl_s.or(self.last_ttl_s) {
            return Ok(ttl_s);
        }
        match self.rdata.last_chunk() {
            Some(minimum) if rtype == Rtype::SOA => {
                let ttl_s = u32::from_be_bytes(*minimum).min(TTL_S_MAX);
                self.default_ttl_s = Some(ttl_s);
                Ok(ttl_s)
            }
            _ => Err(Diagnostic::error(
                position,
                "this record has no TTL, and none was given before",
                "put $TTL 3600 at the start of the file",
            )),
        }
    }
}

/// Reads the entry at which `scanner` stands; on an error the scanner stands somewhere within it.
pub(super) fn read(
    scanner: &mut Scanner,
    leading: Leading,
    context: &mut Context,
    limits: &ParserLimits,
) -> Result<EntryKind, Diagnostic> {
    if leading == Leading::Token {
        let Some(token) = scanner.token()? else {
            return Ok(EntryKind::Nothing);
        };
        let is_directive = token.form == Form::Word && scanner.text_of(token).starts_with(b"$");
        if is_directive && !scanner.is_generated() {
            return directive(token, scanner, context, limits);
        }
        context.set_owner(scanner, token)?;
    }
    match context.owner {
        Owner::Inside(_) | Owner::Faulty => record(scanner, context),
        Owner::Outside => {
            scanner.skip_entry();
            Ok(EntryKind::Nothing)
        }
        Owner::Unknown => match scanner.token()? {
            None => Ok(EntryKind::Nothing),
            Some(token) => Err(Diagnostic::error(
                scanner.position_of(token),
                "this record has no owner, and there is none before it",
                "start the line with the owner; @ is the origin",
            )),
        },
    }
}

/// Reads TTL, class, type and RDATA.
fn record(scanner: &mut Scanner, context: &mut Context) -> Result<EntryKind, Diagnostic> {
    // An entry that failed behind its TTL has left a warning that is of no use now.
    context.warning = None;
    let Head { explicit_ttl_s, position, rtype } = head(scanner, context)?;
    if !rtype.is_data() {
        let problem = format!("{rtype} stands for no data: it cannot be in a zone");
        return Err(Diagnostic::error(position, problem, "take the record away"));
    }
    context.rdata.clear();
    let origin = context.origin.as_name();
    RdataText::new(scanner, origin, rtype, &mut context.rdata, &mut context.scratch).read()?;
    let ttl_s = context.ttl_s(explicit_ttl_s, rtype, position)?;
    match context.owner {
        Owner::Inside(_) => Ok(EntryKind::Record { position, rtype, ttl_s }),
        Owner::Unknown | Owner::Outside | Owner::Faulty => Ok(EntryKind::Nothing),
    }
}

/// What stands between owner and RDATA.
struct Head {
    explicit_ttl_s: Option<u32>,
    position: Position,
    rtype: Rtype,
}

/// Reads TTL and class, in any order, and the type (RFC 1035 §5.1).
fn head(scanner: &mut Scanner, context: &mut Context) -> Result<Head, Diagnostic> {
    let mut explicit_ttl_s = None;
    let mut class_given = false;
    loop {
        let Some(token) = scanner.token()? else {
            let remedy = "write owner, TTL, class, type and data in one line, or in parentheses";
            return Err(Diagnostic::error(scanner.position(), "the record ends before its type", remedy));
        };
        let text = scanner.text_of(token);
        if explicit_ttl_s.is_none() && text.first().is_some_and(u8::is_ascii_digit) {
            explicit_ttl_s = Some(ttl(scanner, token, context)?);
        } else if let Some(rtype) = Rtype::from_text(text) {
            return Ok(Head { explicit_ttl_s, position: scanner.position_of(token), rtype });
        } else if !class_given && is_class(text) {
            class_given = true;
            if !text.eq_ignore_ascii_case(b"IN") && !text.eq_ignore_ascii_case(b"CLASS1") {
                let problem = format!("the class {} is not IN", Shown(text));
                return Err(Diagnostic::error(scanner.position_of(token), problem, "write IN, or no class at all"));
            }
        } else {
            let remedy = "write a type such as A or MX, or TYPE65280 for one that has no name";
            return Err(Diagnostic::not_a(scanner, token, "record type", remedy));
        }
    }
}

/// Whether `text` names a class; RFC 3597 §5 has `CLASS1`.
fn is_class(text: &[u8]) -> bool {
    let known: [&[u8]; 5] = [b"IN", b"CH", b"CHAOS", b"HS", b"HESIOD"];
    let is_numbered = || {
        text.split_at_checked(5).is_some_and(|(head, digits)| {
            head.eq_ignore_ascii_case(b"CLASS") && number::parse_decimal(digits, u64::from(u16::MAX)).is_some()
        })
    };
    known.iter().any(|class| class.eq_ignore_ascii_case(text)) || is_numbered()
}

/// A TTL; one over the limit counts as 0 (RFC 2181 §8), with a warning.
fn ttl(scanner: &Scanner, token: Token, context: &mut Context) -> Result<u32, Diagnostic> {
    let text = scanner.text_of(token);
    let Some(ttl_s) = number::parse_period_s(text) else {
        return Err(Diagnostic::not_a(scanner, token, "TTL", field_text::PERIOD_REMEDY));
    };
    if ttl_s <= TTL_S_MAX {
        return Ok(ttl_s);
    }
    let problem = format!("the TTL {} is over {TTL_S_MAX} seconds and counts as 0", Shown(text));
    context.warning =
        Some(Diagnostic::warning(scanner.position_of(token), problem, "write a TTL of days, not of centuries"));
    Ok(0)
}

fn directive(
    token: Token,
    scanner: &mut Scanner,
    context: &mut Context,
    limits: &ParserLimits,
) -> Result<EntryKind, Diagnostic> {
    let is = |name: &str| scanner.text_of(token).eq_ignore_ascii_case(name.as_bytes());
    let entry = if is("$ORIGIN") {
        let origin = required(scanner, "$ORIGIN", "a name")?;
        let origin = name(scanner, origin, context)?;
        context.set_origin(origin);
        EntryKind::Nothing
    } else if is("$TTL") {
        let period = required(scanner, "$TTL", "a time such as 3600 or 1h")?;
        context.default_ttl_s = Some(ttl(scanner, period, context)?);
        if let Some(warning) = context.take_warning() {
            scanner.skip_entry();
            return Err(warning);
        }
        EntryKind::Nothing
    } else if is("$INCLUDE") {
        let file = required(scanner, "$INCLUDE", "a file name")?;
        let path = String::from_utf8_lossy(&field_text::unescaped(scanner, file)?).into_owned();
        let origin = match scanner.token()? {
            Some(origin) => name(scanner, origin, context)?,
            None => context.origin,
        };
        EntryKind::Include { position: scanner.position_of(file), path, origin: Box::new(origin) }
    } else if is("$GENERATE") {
        return Generate::parse(scanner.position_of(token), scanner, limits)
            .map(|generate| EntryKind::Generate(Box::new(generate)));
    } else if is("$DATE") {
        // BIND writes it into its dumps; it says when the TTLs were right, which is nothing to a zone.
        scanner.skip_entry();
        EntryKind::Nothing
    } else {
        let remedy = "there are $ORIGIN, $TTL, $INCLUDE and $GENERATE; an owner that starts with $ is written \\$";
        return Err(Diagnostic::not_a(scanner, token, "directive", remedy));
    };
    field_text::expect_end(scanner)?;
    Ok(entry)
}

fn required(scanner: &mut Scanner, directive: &str, what: &str) -> Result<Token, Diagnostic> {
    scanner.token()?.ok_or_else(|| {
        Diagnostic::error(scanner.position(), format!("{directive} has nothing behind it"), format!("write {what}"))
    })
}

/// The name that `token` spells in a directive.
fn name(scanner: &Scanner, token: Token, context: &mut Context) -> Result<NameBuf, Diagnostic> {
    context.scratch.clear();
    name_text::put_name(scanner.text_of(token), token.form, context.origin.as_name(), &mut context.scratch)
        .map_err(|error| error.about("origin", scanner, token))?;
    Ok(Name::parse(&context.scratch).expect("a name was made by put_name").to_owned())
}
