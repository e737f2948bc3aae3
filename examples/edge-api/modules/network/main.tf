terraform {
  required_version = ">= 1.4"
}

variable "install_id" {
  type = string
}

variable "region" {
  type = string
}

variable "zones" {
  type = string
}

variable "pace_seconds" {
  type    = number
  default = 0
}

resource "terraform_data" "network" {
  # A change of these values replaces the resource and causes a new effect.
  triggers_replace = {
    install_id = var.install_id
    region     = var.region
    zones      = var.zones
  }

  provisioner "local-exec" {
    command = "sh ${path.module}/effect.sh network ${var.pace_seconds}"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "sh ${path.module}/effect.sh network/destroy 0"
  }
}
