//! Turns the regular expressions that configurations of web servers mostly have into patterns of paths.
//!
//! `^/old/(.*)$` is `/old/*`, and `\.(png|jpg)$` is `/*.png` and `/*.jpg`. Others have no pattern.

use sanderling_site_rules::Pattern;

/// Patterns of one expression.
const PATTERNS_MAX: usize = 64;
/// Groups within groups.
const GROUP_DEPTH_MAX: usize = 16;

/// The patterns of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patterns {
    pub(crate) patterns: Vec<PathPattern>,
    /// Whether they match paths that the expression does not, since a pattern has no sets of characters.
    pub(crate) is_wider: bool,
}

/// A pattern with the parts of the path that a destination can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPattern {
    pub(crate) text: String,
    /// The texts of `$1`, `$2` and so on in a destination.
    pub(crate) captures: Vec<String>,
}

/// A part of an expression without alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `.*`
    Rest,
    /// `[^/]+`
    Segment,
    /// The start and the end of the group with this number.
    Open(usize),
    Close(usize),
}

type Sequence = Vec<Piece>;

/// The patterns of `expression`; `None` if it has none.
pub(crate) fn patterns(expression: &str) -> Option<Patterns> {
    let expression = expression.strip_prefix("(?i)").unwrap_or(expression);
    let (starts, inner) = match expression.strip_prefix('^') {
        Some(inner) => (true, inner),
        None => (false, expression),
    };
    let (ends, inner) = match inner.strip_suffix('$') {
        Some(inner) if !inner.ends_with('\\') => (true, inner),
        _ => (false, inner),
    };
    let mut parser = Parser { rest: inner, group_count: 0, is_wider: false };
    let sequences = parser.alternatives(0)?;
    if !parser.rest.is_empty() {
        return None;
    }
    let group_count = parser.group_count;
    let mut found = Patterns { patterns: Vec::new(), is_wider: parser.is_wider };
    for sequence in sequences {
        for pattern in path_patterns(&sequence, starts, ends, group_count)? {
            if !found.patterns.contains(&pattern) {
                found.patterns.push(pattern);
            }
        }
    }
    (!found.patterns.is_empty()).then_some(found)
}

/// The patterns of one sequence, all of which have to be valid.
fn path_patterns(sequence: &[Piece], starts: bool, ends: bool, group_count: usize) -> Option<Vec<PathPattern>> {
    let mut pieces: Vec<Piece> = sequence.to_vec();
    if !ends && pieces.iter().rev().find(|piece| is_matching(piece)) != Some(&Piece::Rest) {
        pieces.push(Piece::Rest);
    }
    let first = pieces.iter().find(|piece| is_matching(piece));
    let begins_with_slash = matches!(first, Some(Piece::Text(text)) if text.starts_with('/'));
    let mut variants = Vec::new();
    if starts || matches!(first, Some(Piece::Rest)) {
        variants.push(pieces);
    } else {
        if begins_with_slash {
            variants.push(pieces.clone());
        }
        pieces.insert(0, Piece::Text("/".to_owned()));
        pieces.insert(1, Piece::Rest);
        variants.push(pieces);
    }
    let found: Option<Vec<PathPattern>> = variants.iter().map(|pieces| path_pattern(pieces, group_count)).collect();
    found.filter(|found| found.iter().all(|pattern| Pattern::parse(&pattern.text, &[]).is_ok()))
}

fn is_matching(piece: &Piece) -> bool {
    !matches!(piece, Piece::Open(_) | Piece::Close(_))
}

/// The pattern of these pieces, of which the first is the start of the path.
fn path_pattern(pieces: &[Piece], group_count: usize) -> Option<PathPattern> {
    let (mut text, mut destination, mut segment_count) = (String::new(), String::new(), 0);
    let mut open = vec![0; group_count];
    let mut captures = vec![String::new(); group_count];
    for piece in pieces {
        match piece {
            Piece::Text(literal) => {
                for next in literal.chars() {
                    match next {
                        '*' => text.push_str("%2A"),
                        ':' => text.push_str("%3A"),
                        next => text.push(next),
                    }
                }
                destination.push_str(literal);
            }
            Piece::Rest | Piece::Segment => {
                let slash = if text.is_empty() { "/" } else { "" };
                let (pattern, part) = if *piece == Piece::Rest {
                    ("*".to_owned(), ":splat".to_owned())
                } else {
                    segment_count += 1;
                    (format!(":s{segment_count}"), format!(":s{segment_count}"))
                };
                text.push_str(slash);
                text.push_str(&pattern);
                destination.push_str(slash);
                destination.push_str(&part);
            }
            Piece::Open(number) => open[number - 1] = destination.len(),
            Piece::Close(number) => captures[number - 1] = destination[open[number - 1]..].to_owned(),
        }
    }
    text.starts_with('/').then_some(PathPattern { text, captures })
}

struct Parser<'t> {
    rest: &'t str,
    group_count: usize,
    is_wider: bool,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn take(&mut self, text: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(text) else { return false };
        self.rest = rest;
        true
    }

    /// Sequences separated by bars, up to the end or a closing parenthesis, which is left.
    fn alternatives(&mut self, depth: usize) -> Option<Vec<Sequence>> {
        if depth > GROUP_DEPTH_MAX {
            return None;
        }
        let mut all = self.sequences(depth)?;
        while self.take("|") {
            all.extend(self.sequences(depth)?);
        }
        (all.len() <= PATTERNS_MAX).then_some(all)
    }

    /// All sequences that one alternative stands for.
    fn sequences(&mut self, depth: usize) -> Option<Vec<Sequence>> {
        let mut all = vec![Sequence::new()];
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let mut atoms = self.atom(depth)?;
            if self.take("?") {
                // A repetition that takes as little as possible takes the same from a whole path.
                let is_lazy = matches!(atoms[..], [ref atom] if matches!(atom[..], [Piece::Rest | Piece::Segment]));
                if !is_lazy {
                    atoms.push(Sequence::new());
                }
            }
            if self.rest.starts_with(['*', '+', '{']) || all.len() * atoms.len() > PATTERNS_MAX {
                return None;
            }
            let joined =
                |start: &Sequence| atoms.iter().map(|end| [start.as_slice(), end].concat()).collect::<Vec<_>>();
            all = all.iter().flat_map(joined).collect();
        }
        Some(all)
    }

    fn atom(&mut self, depth: usize) -> Option<Vec<Sequence>> {
        let one = |piece: Piece| Some(vec![vec![piece]]);
        match self.next()? {
            '(' => self.group(depth),
            '.' if self.take("*") || self.take("+") => one(Piece::Rest),
            // A dot before an extension, in most cases.
            '.' => one(Piece::Text(".".to_owned())),
            '[' => {
                let end = self.rest.find(']').filter(|end| *end > 0)?;
                let set = &self.rest[..end];
                self.rest = &self.rest[end + 1..];
                let is_other = set == "^/" || set == "^/?";
                if self.take("+") || (is_other && self.take("*")) {
                    self.is_wider |= !is_other;
                    return one(Piece::Segment);
                }
                let is_plain = set.len() <= 4 && set.bytes().all(|byte| byte.is_ascii_alphanumeric());
                is_plain.then(|| set.chars().map(|next| vec![Piece::Text(next.to_string())]).collect())
            }
            '\\' => match self.next()? {
                'd' | 'w' if self.take("+") => {
                    self.is_wider = true;
                    one(Piece::Segment)
                }
                next if next.is_alphanumeric() => None,
                next => one(Piece::Text(next.to_string())),
            },
            '^' | '$' | '*' | '+' | '?' | '{' => None,
            next => one(Piece::Text(next.to_string())),
        }
    }

    fn group(&mut self, depth: usize) -> Option<Vec<Sequence>> {
        let is_capture = !self.take("?:");
        if is_capture && self.rest.starts_with('?') {
            return None;
        }
        self.group_count += usize::from(is_capture);
        let number = self.group_count;
        let mut all = self.alternatives(depth + 1)?;
        if is_capture {
            for sequence in &mut all {
                sequence.insert(0, Piece::Open(number));
                sequence.push(Piece::Close(number));
            }
        }
        self.take(")").then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(expression: &str) -> String {
        let Some(found) = patterns(expression) else { return "none".to_owned() };
        let one = |pattern: &PathPattern| match &pattern.captures[..] {
            [] => pattern.text.clone(),
            captures => format!("{} ({})", pattern.text, captures.join(" ")),
        };
        let all: Vec<String> = found.patterns.iter().map(one).collect();
        format!("{}{}", all.join(", "), if found.is_wider { " wider" } else { "" })
    }

    #[test]
    fn usual_expressions_have_patterns() {
        for (expression, expected) in [
            ("^/old/(.*)$", "/old/* (:splat)"),
            ("^(.*)$", "/* (/:splat)"),
            ("^/(.*)", "/* (:splat)"),
            ("\\.(png|jpe?g)$", "/*.png (png), /*.jpeg (jpeg), /*.jpg (jpg)"),
            ("\\.(?:css|js)$", "/*.css, /*.js"),
            ("^/a/([^/]+)/b$", "/a/:s1/b (:s1)"),
            ("^/post/([0-9]+)/?$", "/post/:s1/ (:s1), /post/:s1 (:s1) wider"),
            ("^/feed$", "/feed"),
            ("^/feed", "/feed*"),
            ("/xmlrpc\\.php$", "/xmlrpc.php, /*/xmlrpc.php"),
            ("^/(a|b)/(.*)$", "/a/* (a :splat), /b/* (b :splat)"),
            ("^/(foo/.*)$", "/foo/* (foo/:splat)"),
            ("^/a:b$", "/a%3Ab"),
            ("^/(?!x)", "none"),
            ("^/a{2}$", "none"),
            ("/a/.*\\.php$", "none"),
            ("^/(a", "none"),
            ("", "/*"),
        ] {
            assert_eq!(shown(expression), expected, "{expression}");
        }
        assert_eq!(shown(&"(a|b)".repeat(7)), "none");
        assert_eq!(shown(&"(".repeat(1_000)), "none");
    }
}
