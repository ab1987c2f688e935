use std::collections::HashMap;
use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub enum Token<'a> {
    Number(f64),
    Name(&'a str),
    Sign(char),
}

pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
    counts: HashMap<&'static str, usize>,
}

#[derive(Debug)]
pub struct Unexpected {
    pub found: char,
    pub at: usize,
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unexpected '{}' at {}", self.found, self.at)
    }
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        Lexer { text, at: 0, counts: HashMap::new() }
    }

    fn take_while<F: Fn(char) -> bool>(&mut self, wanted: F) -> &'a str {
        let rest = &self.text[self.at..];
        let n = rest.find(|c: char| !wanted(c)).unwrap_or(rest.len());
        self.at += n;
        &rest[..n]
    }

    // A name may hold an apostrophe (don't ask why), but not begin with one.
    pub fn next_token(&mut self) -> Result<Option<Token<'a>>, Unexpected> {
        self.take_while(char::is_whitespace);
        let first = match self.text[self.at..].chars().next() {
            Some(c) => c,
            None => return Ok(None),
        };
        let token = if first.is_ascii_digit() {
            *self.counts.entry("number").or_insert(0) += 1;
            let digits = self.take_while(|c| c.is_ascii_digit() || c == '.');
            Token::Number(digits.parse().unwrap_or(f64::NAN))
        } else if first.is_alphabetic() {
            *self.counts.entry("name").or_insert(0) += 1;
            Token::Name(self.take_while(|c| c.is_alphanumeric() || c == '\''))
        } else if "+-*/()[]".contains(first) {
            self.at += first.len_utf8();
            Token::Sign(first)
        } else {
            return Err(Unexpected { found: first, at: self.at });
        };
        Ok(Some(token))
    }

    pub fn all(mut self) -> Result<Vec<Token<'a>>, Unexpected> {
        let mut tokens = Vec::with_capacity(self.text.len() / 4);
        while let Some(token) = self.next_token()? {
            tokens.push(token);
        }
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_three_tokens() {
        let tokens = Lexer::new("1 + two").all().unwrap();
        assert_eq!(tokens.len(), 3);
        assert_eq!(tokens[2], Token::Name("two"));
    }
}
