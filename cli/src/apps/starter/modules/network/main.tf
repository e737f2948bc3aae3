# Stands in for a real network: terraform_data makes nothing, and needs no account and no provider.
variable "install" {
  type = string
}

resource "terraform_data" "network" {
  input = "net-${var.install}"
}

output "network" {
  value = terraform_data.network.output
}
