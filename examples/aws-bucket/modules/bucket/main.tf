terraform {
  required_version = ">= 1.4"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "name" {
  type = string
}

variable "region" {
  type = string
}

variable "retention_days" {
  type = number
}

variable "real_aws" {
  type = bool
}

provider "aws" {
  region = var.region

  # A compatible endpoint has no metadata service, no account and no host name per bucket.
  s3_use_path_style           = !var.real_aws
  skip_credentials_validation = !var.real_aws
  skip_metadata_api_check     = !var.real_aws
  skip_requesting_account_id  = !var.real_aws
}

resource "aws_s3_bucket" "notes" {
  bucket        = var.name
  force_destroy = true

  tags = {
    retention_days = var.retention_days
  }
}

resource "aws_iam_role" "reader" {
  name = "${var.name}-reader"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "reader" {
  name = "read"
  role = aws_iam_role.reader.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["s3:GetObject", "s3:ListBucket"]
      Resource = [aws_s3_bucket.notes.arn, "${aws_s3_bucket.notes.arn}/*"]
    }]
  })
}

output "bucket" {
  value = aws_s3_bucket.notes.bucket
}

output "role_arn" {
  value = aws_iam_role.reader.arn
}
