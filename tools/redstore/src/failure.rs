//! Failures, each in one line that names the object, the reason and the remedy.

use object_store::client::{HttpError, HttpErrorKind};
use redrt_wire::object::Ending;
use std::error::Error as _;
use std::fmt;

/// A failure; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Kind of the failure, which becomes the exit code.
    pub ending: Ending,
    sentence: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Failure {
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self { ending: Ending::Usage, sentence: sentence.into() }
    }

    /// A failure on this host.
    pub fn here(sentence: impl Into<String>) -> Self {
        Self { ending: Ending::Failed, sentence: sentence.into() }
    }

    pub fn damaged(sentence: impl Into<String>) -> Self {
        Self { ending: Ending::Damaged, sentence: sentence.into() }
    }

    pub fn silent(place: &str, seconds: u64) -> Self {
        let sentence = format!("{place} does not answer: nothing has moved for {seconds} s");
        Self { ending: Ending::Silent, sentence }
    }

    /// A store refuses or fails. `what` is the action, such as `put KEY`; `place` is the store.
    pub fn of_store(what: &str, place: &str, error: &object_store::Error) -> Self {
        use object_store::Error;
        let failed = format!("Failed to {what} in {place}");
        let ending = match error {
            Error::NotFound { .. } => Ending::Missing,
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                return Self::here(format!("{failed}: it is there"));
            }
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Ending::Denied,
            error => return Self::of_causes(&failed, error),
        };
        Self::of_ending(ending, &failed, "")
    }

    fn of_ending(ending: Ending, failed: &str, innermost: &str) -> Self {
        let why = match ending {
            Ending::Missing => "there is no such object, or no such bucket".to_owned(),
            Ending::Denied => {
                "the store refuses; look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where redrun was \
                               started, at AWS_REGION, at GOOGLE_… or AZURE_…, or at the permissions of the directory"
                    .to_owned()
            }
            Ending::Silent => {
                format!(
                    "it cannot be reached, or does not answer ({innermost}); look at AWS_ENDPOINT_URL or its like, and the network"
                )
            }
            _ => innermost.to_owned(),
        };
        Self { ending, sentence: format!("{failed}: {why}") }
    }

    fn of_causes(failed: &str, error: &object_store::Error) -> Self {
        let (mut cause, mut innermost, mut is_silent) = (error.source(), error.to_string(), false);
        while let Some(inner) = cause {
            is_silent |= inner.downcast_ref::<HttpError>().is_some_and(|http| {
                use HttpErrorKind::{Connect, Interrupted, Request, Timeout};
                matches!(http.kind(), Connect | Timeout | Interrupted | Request)
            });
            innermost = inner.to_string();
            cause = inner.source();
        }
        // The crate has no type for the status of a server's answer.
        let status = innermost.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        let ending = match status {
            Some(401 | 403) => Ending::Denied,
            Some(404) => Ending::Missing,
            Some(_) => Ending::Failed,
            None if is_silent => Ending::Silent,
            None => Ending::Failed,
        };
        Self::of_ending(ending, failed, &without_body(&innermost))
    }
}

/// Cuts the server's own text from an error: it may repeat the request, credentials included.
fn without_body(error: &str) -> String {
    let (before, body) = error.split_once('<').unwrap_or((error, ""));
    let code = body.split_once("Code>").and_then(|(_, rest)| rest.split_once("</")).map(|(code, _)| code);
    let code = code.filter(|code| code.len() < 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let before = before.trim_end_matches([' ', ':']);
    code.map_or_else(|| before.to_owned(), |code| format!("{before}: {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_server_says_only_its_code_is_repeated() {
        let told = |text: &str| without_body(text);
        assert_eq!(told("status code: 400: <?xml?><Error><Code>Bad</Code><X>secret</X>"), "status code: 400: Bad");
        assert_eq!(told("code: 500 <html>secret</html>"), "code: 500");
        assert_eq!(told("<Code>not a code</Code>"), "");
        assert_eq!(told("No space left on device"), "No space left on device");
    }
}
