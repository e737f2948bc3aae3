variable "name" {
  type = string
}

variable "address" {
  type = string
}

resource "terraform_data" "record" {
  input = { name = var.name, address = var.address }
}

output "url" {
  value = "https://${terraform_data.record.output.name}"
}
