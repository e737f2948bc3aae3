# Rendered like any other text of the config.
company = "{{ .nuon.inputs.inputs.company }}"
{{- if eq .nuon.inputs.inputs.tls "true" }}
scheme  = "https"
{{- else }}
scheme  = "http"
{{- end }}
