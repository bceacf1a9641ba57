package demo

// An Order is the context of a task.
type Order struct {
	Number   int               `json:"order_number"`
	Customer Customer          `json:"customer"`
	Items    []Item            `json:"items"`
	Simulate map[string]string `json:"simulate,omitempty"` // permanent errors by handler
}

// A Customer receives the parcel and the message.
type Customer struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email"`
}

// An Item is one line of an order.
type Item struct {
	SKU        string `json:"sku"`
	Quantity   int    `json:"quantity"`
	PriceCents int    `json:"price_cents"` // per piece
}

func (o Order) totalCents() int {
	total := 0
	for _, i := range o.Items {
		total += i.Quantity * i.PriceCents
	}
	return total
}

// A Validated is the result of validate_order.
type Validated struct {
	Number     int  `json:"order_number"`
	Valid      bool `json:"valid"`
	TotalCents int  `json:"total_cents"`
}

// A Reservation is the result of reserve_stock.
type Reservation struct {
	ID        string `json:"reservation_id"`
	Warehouse string `json:"warehouse"`
	Pieces    int    `json:"pieces"`
}

// A Payment is the result of charge_card. An operator who charges manually completes the step with
// a Payment; only the id is required.
type Payment struct {
	ID          string `json:"payment_id"`
	AmountCents int    `json:"amount_cents"`
	Gateway     string `json:"gateway,omitempty"`
}

// A Shipment is the result of ship_order, with its inputs.
type Shipment struct {
	TrackingNumber string `json:"tracking_number"`
	Carrier        string `json:"carrier"`
	ReservationID  string `json:"reservation_id"`
	PaymentID      string `json:"payment_id"`
	Note           string `json:"note,omitempty"`
}

// A Notice is the result of notify_customer.
type Notice struct {
	To   string `json:"to"`
	Text string `json:"text"`
}
