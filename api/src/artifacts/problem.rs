//! Problem responses with OCI's `errors` member, for OCI clients and Stead's own client.
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use oci_layout::LayoutError;
use serde_json::{Value, json};

use crate::{
    problem::{Code, Problem},
    registry::ArtifactError,
};

/// Error response of the registry.
#[derive(Debug)]
pub(super) struct RegistryProblem(pub(super) Problem);

impl From<Problem> for RegistryProblem {
    fn from(problem: Problem) -> Self {
        RegistryProblem(problem)
    }
}

impl From<ArtifactError> for RegistryProblem {
    fn from(error: ArtifactError) -> Self {
        if let Some(problem) = error.vendor_problem() {
            return RegistryProblem(problem);
        }
        let detail = error.to_string();
        RegistryProblem(match error {
            ArtifactError::Io { .. }
            | ArtifactError::Vendor(_)
            | ArtifactError::Layout(
                LayoutError::Io { .. } | LayoutError::Damaged { .. } | LayoutError::Manifest { .. },
            ) => Problem::internal(detail),
            ArtifactError::Layout(LayoutError::TooLarge { .. }) => {
                Problem::new(Code::TooLarge, detail)
            }
            ArtifactError::Layout(LayoutError::WrongDigest { .. }) => {
                Problem::new(Code::DigestMismatch, detail)
            }
            ArtifactError::BodyEnded(_) => Problem::new(Code::BadRequest, detail),
            ArtifactError::Manifest(_) => Problem::new(Code::Invalid, detail),
        })
    }
}

impl IntoResponse for RegistryProblem {
    fn into_response(self) -> Response {
        let status = self.0.code.status();
        // OCI error codes.
        let code = match status {
            401 => "UNAUTHORIZED",
            403 => "DENIED",
            404 => "NAME_UNKNOWN",
            405 => "UNSUPPORTED",
            413 => "SIZE_INVALID",
            422 => "MANIFEST_INVALID",
            429 => "TOOMANYREQUESTS",
            _ if self.0.code == Code::DigestMismatch => "DIGEST_INVALID",
            _ => "UNKNOWN",
        };
        let mut body = serde_json::to_value(self.0.body()).unwrap_or(Value::Null);
        if let Some(body) = body.as_object_mut() {
            let detail = json!({"code": self.0.code.as_str()});
            let error = json!({"code": code, "message": self.0.detail, "detail": detail});
            body.insert("errors".into(), json!([error]));
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let basic = HeaderValue::from_static("Basic realm=\"stead\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
        }
        response
    }
}
