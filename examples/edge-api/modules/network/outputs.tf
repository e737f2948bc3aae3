output "id" {
  value = "net-${substr(sha256(jsonencode(terraform_data.network.triggers_replace)), 0, 12)}"
}

output "cidr" {
  value = "10.20.0.0/16"
}

output "subnets" {
  value = [for index, zone in split(",", var.zones) : "10.20.${index}.0/24@${zone}"]
}
