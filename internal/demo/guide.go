package demo

import "strings"

// FormatGuide returns the suggestions that the demo prints for the server at url.
func FormatGuide(url string) string {
	return strings.ReplaceAll(guide, "{url}", url)
}

const guide = `
The demo shop is open: order_fulfillment runs validate_order, then reserve_stock
and charge_card side by side, then ship_order and notify_customer. For every
fourth order the payment gateway does not answer: charge_card uses up its three
attempts, and the order becomes an investigation.

In a browser: {url}/ui/ shows what needs a human, and lets you fix it.

In a second terminal (tasker-ctl is bin/tasker-ctl or: go run ./cmd/tasker-ctl):

  export TASKER_URL={url}
  tasker-ctl task list                          # orders, the newest first
  tasker-ctl dlq queue                          # what needs a human
  tasker-ctl dlq get ENTRY_UUID                 # the evidence
  tasker-ctl task steps TASK_UUID               # charge_card is in error, with its UUID

Fix the step in one of three ways:

  # A: the gateway is back, try again
  tasker-ctl task reset-step TASK_UUID STEP_UUID \
      --reason "gateway is back" --reset-by you@example.com
  # B: go on without it
  tasker-ctl task resolve-step TASK_UUID STEP_UUID \
      --reason "the customer paid in cash" --resolved-by you@example.com
  # C: it was done by hand; ship_order receives what you say
  tasker-ctl task complete-step TASK_UUID STEP_UUID --result '{"payment_id": "PAY-BY-HAND"}' \
      --reason "charged by telephone" --completed-by you@example.com

Watch the order go on, and close the case:

  tasker-ctl task watch TASK_UUID
  tasker-ctl dlq update ENTRY_UUID --status manually_resolved \
      --notes "gateway outage, order fixed" --resolved-by you@example.com

An order of your own, whose card no retry can fix:

  tasker-ctl task submit --namespace orders --name order_fulfillment --context '{
    "order_number": 7, "customer": {"email": "you@example.com"},
    "items": [{"sku": "tea-green", "quantity": 1, "price_cents": 650}],
    "simulate": {"charge_card": "card_declined"}}'
`
