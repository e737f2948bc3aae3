//! Settings of a container image.
use domain::image::{ImageReference, ImageReferenceError, MAX_PLATFORMS, Platform};

use super::section::Section;
use crate::model::{Ecr, Image};

pub fn read(section: &Section<'_>) -> Image {
    let (public, ecr) = (section.section("public"), section.section("aws_ecr"));
    if public.is_some() == ecr.is_some() {
        let (code, message) = match public.is_some() {
            true => ("two_sources", "`public` and `aws_ecr` are both set"),
            false => ("missing_key", "`public` or `aws_ecr` is missing"),
        };
        section.error("public", code, message.to_string(), "set the location of the image once");
    }
    let mut image = Image { platforms: platforms(section), ..Image::default() };
    if let Some(ecr) = ecr {
        (image.image_url, image.tag) = location(&ecr);
        let (iam_role_arn, region) = (ecr.required("iam_role_arn"), ecr.required("region"));
        image.ecr = Some(Ecr { iam_role_arn, region });
        ecr.finish();
    }
    if let Some(public) = public {
        (image.image_url, image.tag) = location(&public);
        public.finish();
    }
    image
}

fn location(section: &Section<'_>) -> (String, String) {
    let (image_url, tag) = (section.required("image_url"), section.required("tag"));
    // A missing key is reported already.
    if !image_url.is_empty()
        && !tag.is_empty()
        && let Err(error) = ImageReference::new(&image_url, &tag)
    {
        let key = match &error {
            ImageReferenceError::Tag(_) => "tag",
            ImageReferenceError::Name(_)
            | ImageReferenceError::Scheme(_)
            | ImageReferenceError::Tagged(_)
            | ImageReferenceError::Platform(_) => "image_url",
        };
        report(section, key, &error);
    }
    (image_url, tag)
}

fn platforms(section: &Section<'_>) -> Vec<String> {
    let platforms = section.strings("platforms");
    let invalid = platforms.iter().find_map(|text| text.parse::<Platform>().err());
    if let Some(error) = invalid {
        report(section, "platforms", &error);
    } else if platforms.len() > MAX_PLATFORMS {
        let message = format!("the image has more than {MAX_PLATFORMS} platforms");
        section.error("platforms", "too_much", message, "list the platforms of the installs");
    }
    platforms
}

/// Reports an invalid reference. Its message has the form `problem; remedy`.
fn report(section: &Section<'_>, key: &str, error: &ImageReferenceError) {
    let text = error.to_string();
    let (message, remedy) = text.split_once("; ").unwrap_or((&text, "correct the value"));
    section.error(key, "bad_image", message.to_owned(), remedy);
}
