terraform {
  required_version = ">= 1.4"
}

variable "install_id" {
  type = string
}

variable "region" {
  type = string
}

resource "terraform_data" "base" {
  input = {
    # The name of a bucket is lower case and contains no underscore.
    prefix = replace(lower(var.install_id), "_", "-")
    region = var.region
  }
}

output "prefix" {
  value = terraform_data.base.output.prefix
}

output "account" {
  value = { region = terraform_data.base.output.region }
}
