variable "size" {
  type = number
}

variable "network" {
  type = string
}

resource "terraform_data" "web" {
  input = { size = var.size, network = var.network }
}

output "address" {
  value = "web.${terraform_data.web.output.network}"
}
