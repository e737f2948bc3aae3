# Placeholder for a real network: terraform_data creates nothing, and needs no account or provider.
variable "install" {
  type = string
}

resource "terraform_data" "network" {
  input = "net-${var.install}"
}

output "network" {
  value = terraform_data.network.output
}
