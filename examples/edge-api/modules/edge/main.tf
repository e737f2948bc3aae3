terraform {
  required_version = ">= 1.4"
}

variable "upstream" {
  type = string
}

variable "domain" {
  type = string
}

variable "tls" {
  type = bool
}

variable "pace_seconds" {
  type    = number
  default = 0
}

resource "terraform_data" "edge" {
  # A change of these values replaces the resource and causes a new effect.
  triggers_replace = {
    upstream = var.upstream
    domain   = var.domain
    tls      = var.tls
  }

  provisioner "local-exec" {
    command = "sh ${path.module}/effect.sh edge ${var.pace_seconds}"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "sh ${path.module}/effect.sh edge/destroy 0"
  }
}
