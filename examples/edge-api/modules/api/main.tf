terraform {
  required_version = ">= 1.4"
}

variable "company" {
  type = string
}

variable "scheme" {
  type = string
}

variable "database_url" {
  type = string
}

variable "cache_url" {
  type = string
}

variable "replicas" {
  type = number
}

variable "pace_seconds" {
  type    = number
  default = 0
}

resource "terraform_data" "api" {
  # A change of these values replaces the resource and causes a new effect.
  triggers_replace = {
    company      = var.company
    scheme       = var.scheme
    database_url = var.database_url
    cache_url    = var.cache_url
    replicas     = var.replicas
  }

  provisioner "local-exec" {
    command = "sh ${path.module}/effect.sh api ${var.pace_seconds}"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "sh ${path.module}/effect.sh api/destroy 0"
  }
}
