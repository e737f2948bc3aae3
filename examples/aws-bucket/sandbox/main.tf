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
    # Names in AWS are lower case and contain no underscore.
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
