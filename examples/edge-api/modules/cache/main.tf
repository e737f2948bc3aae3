terraform {
  required_version = ">= 1.4"
}

variable "network_id" {
  type = string
}

variable "subnet" {
  type = string
}

variable "pace_seconds" {
  type    = number
  default = 0
}

resource "terraform_data" "cache" {
  # A change of these values replaces the resource and causes a new effect.
  triggers_replace = {
    network_id = var.network_id
    subnet     = var.subnet
    engine     = local.engine
  }

  provisioner "local-exec" {
    command = "sh ${path.module}/effect.sh cache ${var.pace_seconds}"
  }

  provisioner "local-exec" {
    when    = destroy
    command = "sh ${path.module}/effect.sh cache/destroy 0"
  }
}
