output "account" {
  value = {
    id     = "account-of-${terraform_data.sandbox.triggers_replace.install_id}"
    region = var.region
  }
}

output "zones" {
  value = ["${var.region}-a", "${var.region}-b"]
}
